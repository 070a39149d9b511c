"""Writes the data set: `python prepare.py FOLDER`. Train files for the trainers to share, and one to test with."""

import sys
from pathlib import Path

import recordio
from model import generate

FILES = 8
SAMPLES_PER_FILE = 100_000
TEST_SAMPLES = 40_000


def write(path, samples):
    with recordio.writer(str(path)) as file:
        for sample in samples:
            file.write(sample.tobytes())


def main(folder):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(FILES):
        write(folder / f"train-{number:05d}", generate(SAMPLES_PER_FILE, seed=number))
    write(folder / "test", generate(TEST_SAMPLES, seed=1_000))
    print(f"{FILES * SAMPLES_PER_FILE} samples in {folder}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
