"""A trainer that reads its share of the lines of one file: line i belongs to trainer i modulo their number.

    python prepare.py
    paddlectl submit -parallelism 3 -pservers 0 -entry "python train.py" examples/dist_reader

Where another job has prepared the data, name its folder: `-entry "python train.py /pfs/DATACENTER/home/USER/ngrams"`.
`dist_reader` is that of the guide.
"""

import os
import sys


def dist_reader(filename, trainers, trainer_id):
    def dist_reader_creator():
        with open (filename) as f:
            cnt = 0
            for line in f:
                cnt += 1
                if cnt % trainers == trainer_id:
                    csv_data = [int(cell) for cell in line.split(",")]
                    yield tuple(csv_data)
    return dist_reader_creator


def main():
    trainers = int(os.getenv("TRAINERS", "1"))
    trainer_id = int(os.getenv("TRAINER_ID", "0"))
    folder = sys.argv[1] if len(sys.argv) > 1 else "."
    samples = list(dist_reader(os.path.join(folder, "train.csv"), trainers, trainer_id)())
    print("trainer %d of %d: %d samples, sum %d" % (
        trainer_id, trainers, len(samples), sum(sample[0] for sample in samples)))


if __name__ == "__main__":
    main()
