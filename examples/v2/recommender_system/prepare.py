"""Writes users, films and ratings in the layout of the MovieLens archive: `python prepare.py [folder]`.

The folder is used as DATA_HOME. A user's job and a film's category are directions on a circle, and the rating is higher the nearer they are:
users and films on their own tell nothing, only both together do. The error of a perfect model is printed.
"""

import io
import math
import os
import random
import sys
import zipfile

CATEGORIES = ["Action", "Comedy", "Crime", "Drama", "Horror", "Musical", "Romance", "War"]
WORDS = ["Big", "Dark", "Day", "Last", "Love", "Night", "Star", "Time", "War", "World"]
AGES = [1, 18, 25, 35, 45, 50, 56]
JOBS, USERS, FILMS, RATINGS = 21, 60, 40, 6000


def write(package, name, rows):
    text = io.StringIO()
    for row in rows:
        text.write("::".join(map(str, row)) + "\n")
    package.writestr(f"ml-1m/{name}.dat", text.getvalue())


def main(folder):
    source = random.Random(20170401)
    users = {number: (source.choice("MF"), source.choice(AGES), source.randrange(JOBS)) for number in range(1, USERS + 1)}
    films = {number: (" ".join(source.choices(WORDS, k=2)), source.randrange(len(CATEGORIES))) for number in range(1, FILMS + 1)}
    ratings, lost = [], 0.0
    for _ in range(RATINGS):
        user, film = source.randint(1, USERS), source.randint(1, FILMS)
        angle = 2 * math.pi * (users[user][2] / JOBS - films[film][1] / len(CATEGORIES))
        liking = 3 + 2 * math.cos(angle)
        rating = min(max(round(liking + source.gauss(0, 0.3)), 1), 5)
        # Readers give 2 * rating - 5.
        lost += (2 * rating - 2 * liking) ** 2
        ratings.append((user, film, rating, 978300760))
    os.makedirs(os.path.join(folder, "movielens"), exist_ok=True)
    path = os.path.join(folder, "movielens", "ml-1m.zip")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as package:
        write(package, "users", ((number, *about, "00000") for number, about in users.items()))
        write(package, "movies", ((number, f"{title} (1999)", CATEGORIES[kind]) for number, (title, kind) in films.items()))
        write(package, "ratings", ratings)
    print(f"wrote {RATINGS} ratings to {path}; a perfect model has a squared error of {lost / RATINGS:.3f}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "data")
