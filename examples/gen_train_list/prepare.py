"""Makes files for this example: five to train with and two to test with, ten lines each.

    python prepare.py FOLDER    # your home on the cluster, or a folder to upload there
"""

import gzip
import os
import sys


def write_parts(folder, count):
    os.makedirs(folder, exist_ok=True)
    for part in range(count):
        with gzip.open(os.path.join(folder, "part-%05d.gz" % part), "wt") as file:
            file.writelines("%d %d\n" % (part, line) for line in range(10))


def main():
    write_parts(os.path.join(sys.argv[1], "user001_space"), 5)
    write_parts(os.path.join(sys.argv[1], "user001_space_test"), 2)


if __name__ == "__main__":
    main()
