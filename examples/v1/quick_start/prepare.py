"""Writes short texts for the trainers of a job: `python prepare.py [parts]`.

Every text has one word of praise, one of blame, and one `not` before one of the two: it means the other one. Both kinds have the same words with
the same frequencies, so a bag of words stays at chance.
"""

import os
import random
import sys

GOOD = ["great", "fine", "lovely", "superb"]
BAD = ["awful", "dull", "weak", "boring"]
OTHER = ["film", "plot", "cast", "scene", "music", "story", "actor", "ending", "is", "and", "the", "a"]
TEXTS = 800


def text(source, is_good):
    denied, said = (BAD, GOOD) if is_good else (GOOD, BAD)
    parts = [["not", source.choice(denied)], [source.choice(said)]]
    source.shuffle(parts)
    words = []
    for part in parts:
        words += source.choices(OTHER, k=source.randrange(1, 5)) + part
    return " ".join(words)


def main(parts):
    source = random.Random(20161101)
    os.makedirs("data", exist_ok=True)
    with open("data/dict.txt", "w") as file:
        file.writelines(f"{word}\n" for word in ["<unk>", "not", *GOOD, *BAD, *OTHER])
    for kind, count in (("train", parts), ("test", 1), ("pred", 1)):
        names = [f"data/{kind}-{number:05d}" for number in range(count)]
        for name in names:
            with open(name, "w") as file:
                for number in range(TEXTS // count):
                    label = number % 2
                    file.write(("" if kind == "pred" else f"{label}\t") + text(source, label == 1) + "\n")
        with open(f"data/{kind}.list", "w") as file:
            file.write("\n".join(names))
    print(f"wrote {3 * TEXTS} texts to data; a bag of words answers half of them wrongly")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
