"""Writes click logs for the trainers of a job: `python prepare.py [folder] [parts]`.

A line is `click<TAB>ids`. Whether somebody clicks depends on pairs of ids, so that no sum over single ids predicts it well.
"""

import math
import os
import random
import sys

IDS = 60
LINES = 1500


def chance(user, item):
    """Users of even number like items of even number, the others those of odd number."""
    return 0.9 if user % 2 == item % 2 else 0.1


def best_cost():
    """What a perfect model has: the entropy of a choice of 9 to 1, in nats."""
    return -(0.9 * math.log(0.9) + 0.1 * math.log(0.1))


def write(path, source):
    with open(path, "w") as file:
        for _ in range(LINES):
            user, item = source.randrange(IDS // 2), source.randrange(IDS // 2)
            click = int(source.random() < chance(user, item))
            file.write(f"{click}\t{user} {IDS // 2 + item}\n")


def main(folder, parts):
    source = random.Random(20170524)
    os.makedirs(folder, exist_ok=True)
    for kind, count in (("train", parts), ("test", 1)):
        names = [os.path.join(folder, f"{kind}-{number:05d}") for number in range(count)]
        for name in names:
            write(name, source)
        with open(f"{kind}.list", "w") as file:
            file.write("\n".join(names))
    print(f"wrote {parts + 1} files to {folder}; the best possible cost is {best_cost():.3f}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "data", int(sys.argv[2]) if len(sys.argv) > 2 else 2)
