"""Writes sentences with semantic roles in the layout of the CoNLL-2005 archive: `python prepare.py [folder]`.

The folder is used as DATA_HOME. A role's first word tells which role it is; the words behind it are the same for all roles. Their tags follow from
the tag before them, which is what the CRF learns and a classifier of single words cannot.
"""

import gzip
import io
import os
import random
import struct
import sys
import tarfile

import numpy as np

FIRST = {"A0": ["he", "she", "we", "they"], "A1": ["this", "that", "those", "these"], "AM-TMP": ["when", "once", "since", "until"]}
INSIDE = ["red", "blue", "old", "new", "big", "small", "round", "flat"]
VERBS = ["see", "take", "make", "give", "find", "keep"]
BETWEEN = ["and", "or", "but", "so"]
SENTENCES = 800
WORD_DIM = 32


def sentence(source):
    """(words, verb, brackets) with the verb somewhere between the roles."""
    roles = source.sample(list(FIRST), k=source.randrange(1, 4))
    parts = [(role, [source.choice(FIRST[role]), *source.choices(INSIDE, k=source.randrange(1, 4))]) for role in roles]
    verb = source.choice(VERBS)
    parts.insert(source.randrange(len(parts) + 1), ("V", [verb]))
    words, brackets = [], []
    for role, part in parts:
        if source.random() < 0.3:
            words.append(source.choice(BETWEEN))
            brackets.append("*")
        words += part
        marks = ["*"] * len(part)
        marks[0] = f"({role}*"
        marks[-1] += ")"
        brackets += marks
    return words, verb, brackets


def main(folder):
    source = random.Random(20170801)
    folder = os.path.join(folder, "conll05st")
    os.makedirs(folder, exist_ok=True)
    words, roles = io.StringIO(), io.StringIO()
    for _ in range(SENTENCES):
        said, verb, brackets = sentence(source)
        place = next(number for number, mark in enumerate(brackets) if mark == "(V*)")
        for number, (word, mark) in enumerate(zip(said, brackets)):
            words.write(f"{word}\n")
            roles.write(f"{verb if number == place else '-'} {mark}\n")
        words.write("\n")
        roles.write("\n")
    with tarfile.open(os.path.join(folder, "conll05st-tests.tar.gz"), "w:gz") as archive:
        for kind, text in (("words", words), ("props", roles)):
            content = gzip.compress(text.getvalue().encode())
            info = tarfile.TarInfo(f"conll05st-release/test.wsj/{kind}/test.wsj.{kind}.gz")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    every = ["<unk>", "bos", "eos", *(word for part in FIRST.values() for word in part), *INSIDE, *VERBS, *BETWEEN]
    tags = [f"{letter}-{role}" for role in FIRST for letter in "BI"] + ["B-V", "O"]
    for name, lines in (("wordDict.txt", every), ("verbDict.txt", VERBS), ("targetDict.txt", tags)):
        with open(os.path.join(folder, name), "w") as file:
            file.writelines(f"{line}\n" for line in lines)
    vectors = np.random.default_rng(1).normal(0, 0.3, (len(every), WORD_DIM)).astype(np.float32)
    with open(os.path.join(folder, "emb"), "wb") as file:
        file.write(struct.pack("<IIQ", 0, 4, vectors.size) + vectors.tobytes())
    print(f"wrote {SENTENCES} sentences to {folder}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "data")
