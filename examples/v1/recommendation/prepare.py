"""Writes users, films and ratings: `python prepare.py [parts]`.

A user's occupation and a film's genre are directions on a circle, and the rating is higher the nearer they are: users and films on their own tell
nothing, only both together do. The error of a perfect model is printed.
"""

import json
import math
import os
import random
import sys

GENRES, WORDS, AGES, JOBS, USERS, FILMS, RATINGS = 8, 10, 7, 21, 60, 40, 6000


def main(parts):
    source = random.Random(20161116)
    users = [(source.randrange(2), source.randrange(AGES), source.randrange(JOBS)) for _ in range(USERS)]
    kinds = [source.randrange(GENRES) for _ in range(FILMS)]
    films = [([source.randrange(WORDS) for _ in range(2)], [float(each == kind) for each in range(GENRES)]) for kind in kinds]
    lines, lost = [], 0.0
    for _ in range(RATINGS):
        user, film = source.randrange(USERS), source.randrange(FILMS)
        liking = 3 + 2 * math.cos(2 * math.pi * (users[user][2] / JOBS - kinds[film] / GENRES))
        rating = min(max(round(liking + source.gauss(0, 0.3)), 1), 5)
        lost += (2 * rating - 2 * liking) ** 2
        lines.append(f"{user}::{film}::{rating}\n")
    os.makedirs("data", exist_ok=True)
    meta = {"films": FILMS, "words": WORDS, "genres": GENRES, "users": USERS, "ages": AGES, "jobs": JOBS, "film": films, "user": users}
    with open("data/meta.json", "w") as file:
        json.dump(meta, file)
    cut = RATINGS // 10
    for kind, count, mine in (("test", 1, lines[:cut]), ("train", parts, lines[cut:])):
        names = [f"data/ratings_{kind}-{number:05d}" for number in range(count)]
        for number, name in enumerate(names):
            with open(name, "w") as file:
                file.writelines(mine[number::count])
        with open(f"data/{kind}.list", "w") as file:
            file.write("\n".join(names))
    print(f"wrote {RATINGS} ratings to data; a perfect model has a squared error of {lost / RATINGS:.3f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
