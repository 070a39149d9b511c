"""Writes sentences and their translation in the layout of the WMT-14 archive: `python prepare.py [folder]`.

The folder is used as DATA_HOME. Nouns and adjectives have their own word each, and the adjective moves behind its noun, as from English to
French; so words cannot be translated one by one in their order.
"""

import io
import os
import random
import sys
import tarfile

NOUNS = {"house": "maison", "cat": "chat", "tree": "arbre", "book": "livre", "street": "rue", "river": "fleuve"}
ADJECTIVES = {"red": "rouge", "old": "vieux", "small": "petit", "round": "rond"}
JOINTS = {"and": "et", "or": "ou"}
SENTENCES = {"train/train": 1500, "test/test": 100, "gen/gen": 100}


def sentence(source):
    english, french = [], []
    for number in range(source.randrange(1, 4)):
        if number:
            joint = source.choice(list(JOINTS))
            english.append(joint)
            french.append(JOINTS[joint])
        noun = source.choice(list(NOUNS))
        adjectives = source.sample(list(ADJECTIVES), k=source.randrange(0, 2))
        english += [*adjectives, noun]
        french += [NOUNS[noun], *(ADJECTIVES[each] for each in adjectives)]
    return " ".join(english), " ".join(french)


def main(folder):
    source = random.Random(20170901)
    os.makedirs(os.path.join(folder, "wmt14"), exist_ok=True)
    path = os.path.join(folder, "wmt14", "wmt14.tgz")
    files = {name: "".join("\t".join(sentence(source)) + "\n" for _ in range(count)) for name, count in SENTENCES.items()}
    words = {**NOUNS, **ADJECTIVES, **JOINTS}
    files["src.dict"] = "\n".join(["<s>", "<e>", "<unk>", *words]) + "\n"
    files["trg.dict"] = "\n".join(["<s>", "<e>", "<unk>", *words.values()]) + "\n"
    with tarfile.open(path, "w:gz") as archive:
        for name, text in files.items():
            content = text.encode()
            info = tarfile.TarInfo(f"wmt14/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    print(f"wrote {sum(SENTENCES.values())} sentences to {path}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "data")
