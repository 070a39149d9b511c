"""Writes reviews in the layout of the IMDB archive: `python prepare.py [folder]`.

The folder is used as DATA_HOME. Every review has one word of praise, one of blame, and one `not` before one of the two: it means the other
one. Both kinds of reviews have the same words with the same frequencies, so a bag of words stays at chance.
"""

import io
import os
import random
import sys
import tarfile

GOOD = ["great", "fine", "lovely", "superb"]
BAD = ["awful", "dull", "weak", "boring"]
OTHER = ["film", "plot", "cast", "scene", "music", "story", "actor", "ending", "camera", "pace", "is", "and", "the", "a"]
REVIEWS = {"train": 1600, "test": 400}


def review(source, is_good):
    """`not awful … great` praises, `not great … awful` blames; which of the two comes first does not matter."""
    denied, said = (BAD, GOOD) if is_good else (GOOD, BAD)
    parts = [["not", source.choice(denied)], [source.choice(said)]]
    source.shuffle(parts)
    words = []
    for part in parts:
        words += source.choices(OTHER, k=source.randrange(1, 5)) + part
    return " ".join(words + source.choices(OTHER, k=source.randrange(1, 4)))


def main(folder):
    source = random.Random(20170601)
    os.makedirs(os.path.join(folder, "imdb"), exist_ok=True)
    path = os.path.join(folder, "imdb", "aclImdb_v1.tar.gz")
    with tarfile.open(path, "w:gz") as archive:
        for part, count in REVIEWS.items():
            for number in range(count):
                kind = ("neg", "pos")[number % 2]
                text = (review(source, kind == "pos") + ".\n").encode()
                info = tarfile.TarInfo(f"aclImdb/{part}/{kind}/{number}_5.txt")
                info.size = len(text)
                archive.addfile(info, io.BytesIO(text))
    print(f"wrote {sum(REVIEWS.values())} reviews to {path}; a bag of words answers half of them wrongly")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "data")
