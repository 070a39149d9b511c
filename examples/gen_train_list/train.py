"""A trainer that lists its share of the files in /train.list and /test.list, then reads it.

    paddlectl submit -parallelism 2 -pservers 0 -entry "python train.py" examples/gen_train_list

`gen_train_list` is that of the guide; the patterns have its placeholders filled in from the environment. Put files
`part-*.gz` into `user001_space` and `user001_space_test` of your home, or run `python prepare.py FOLDER` for some.
"""

import glob
import gzip
import os

HOME = "/pfs/%s/home/%s" % (
    os.getenv("PADDLE_CLOUD_CURRENT_DATACENTER"), os.getenv("PADDLE_CLOUD_USERNAME"))
TRAIN_FILE_PATTERN = HOME + "/user001_space/part-*.gz"
TEST_FILE_PATTERN  = HOME + "/user001_space_test/part-*.gz"

def gen_train_list(data_dir):
    # write "/train.list" and "/test.list" for each node
    trainer_id = -1
    trainer_count = -1
    with open("/trainer_id", "r") as f:
        trainer_id = int(f.readline()[:-1])
    with open("/trainer_count", "r") as f:
        trainer_count = int(f.readline()[:-1])

    train_file_list = glob.glob(TRAIN_FILE_PATTERN)
    train_file_list.sort()
    my_train_list = []
    for idx, f in enumerate(train_file_list):
        if idx % trainer_count == trainer_id:
            my_train_list.append(f)
    with open("/train.list", "w") as f:
        f.write('\n'.join(my_train_list))

    test_file_list = glob.glob(TEST_FILE_PATTERN)
    test_file_list.sort()
    my_test_list = []
    for idx, f in enumerate(test_file_list):
        if idx % trainer_count == trainer_id:
            my_test_list.append(f)
    with open("/test.list", "w") as f:
        f.write('\n'.join(my_test_list))


def main():
    gen_train_list(HOME)
    for name in ("/train.list", "/test.list"):
        with open(name) as f:
            files = f.read().splitlines()
        lines = sum(len(gzip.open(file).read().splitlines()) for file in files)
        print("%s: %s, %d lines" % (name, " ".join(map(os.path.basename, files)) or "no files", lines))


if __name__ == "__main__":
    main()
