"""A trainer that reads its share of RecordIO files: file i belongs to trainer i modulo their number.

    python prepare.py
    paddlectl submit -parallelism 3 -pservers 0 -entry "python train.py" examples/recordio_reader

Where another job has prepared the data, name its folder: `-entry "python train.py /pfs/DATACENTER/home/USER/squares"`.
`recordio_reader` is the reader of the guide, for Python 3.
"""

import glob
import os
import pickle
import sys

import recordio

def recordio_reader(filepath, parallelism, trainer_id):
    # sample filepath as "/pfs/dc1/home/user1@example.com/dataset/uci_housing/uci_housing_train*"
    def reader():
        if trainer_id >= parallelism:
            sys.stdout.write("invalied trainer_id: %d\n" % trainer_id)
            return
        files = glob.glob(filepath)
        files.sort()
        my_file_list = []
        for idx, f in enumerate(files):
            if idx % parallelism == trainer_id:
                my_file_list.append(f)

        for fn in my_file_list:
            r = recordio.reader(fn)
            while True:
                d = r.read()
                if not d:
                    break
                yield pickle.loads(d)

    return reader


def main():
    parallelism = int(os.getenv("PADDLE_INIT_NUM_GRADIENT_SERVERS", "1"))
    trainer_id = int(os.getenv("PADDLE_INIT_TRAINER_ID", "0"))
    folder = sys.argv[1] if len(sys.argv) > 1 else "./dataset"
    samples = list(recordio_reader(folder + "/squares_train*", parallelism, trainer_id)())
    if any(square != number * number for number, square in samples):
        sys.exit("a sample is not what was written")
    print("trainer %d of %d: %d samples, sum %d" % (
        trainer_id, parallelism, len(samples), sum(number for number, _ in samples)))


if __name__ == "__main__":
    main()
