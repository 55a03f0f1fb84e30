"""Makes small data sets in the formats that the recipes' repositories read: generate.py KIND FOLDER [NUMBER ...]

The numbers are those of the function for that kind. The same arguments give the same bytes.
"""

from __future__ import annotations

import pickle
import random
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

rng = np.random.default_rng(0)


def images(folder: Path, classes: int, each: int, size: int) -> None:
    """Blurred noise in a folder for each class, as torchvision's ImageFolder wants it."""
    from PIL import Image

    for label in range(classes):
        target = folder / f"class{label}"
        target.mkdir(parents=True, exist_ok=True)
        for number in range(each):
            pixels = rng.integers(0, 256, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).resize((size, size), Image.Resampling.BILINEAR).save(target / f"{number}.png")


def segments(folder: Path, count: int, size: int) -> None:
    """Images with a bright square, and masks that are 1 there."""
    from PIL import Image

    for name in ("imgs", "masks"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for number in range(count):
        image, mask = rng.integers(0, 120, (size, size, 3), dtype=np.uint8), np.zeros((size, size), np.uint8)
        x, y = rng.integers(0, size // 2, 2)
        image[y : y + size // 2, x : x + size // 2] += 100
        mask[y : y + size // 2, x : x + size // 2] = 1
        Image.fromarray(image).save(folder / "imgs" / f"{number}.png")
        Image.fromarray(mask).save(folder / "masks" / f"{number}.png")


def digits(folder: Path, train: int, test: int) -> None:
    """MNIST's files, with a bar whose height tells the class."""
    target = folder / "MNIST" / "raw"
    target.mkdir(parents=True, exist_ok=True)
    for name, count in (("train", train), ("t10k", test)):
        labels = rng.integers(0, 10, count, dtype=np.uint8)
        pictures = rng.integers(0, 60, (count, 28, 28), dtype=np.uint8)
        for picture, label in zip(pictures, labels, strict=True):
            picture[2 * label : 2 * label + 6, 4:24] = 220
        header = struct.pack(">IIII", 2051, count, 28, 28)
        (target / f"{name}-images-idx3-ubyte").write_bytes(header + pictures.tobytes())
        (target / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 2049, count) + labels.tobytes())


def cifar(folder: Path, train: int, test: int) -> None:
    """CIFAR-10's files, with `train` pictures in each of the five batches."""
    target = folder / "cifar-10-batches-py"
    target.mkdir(parents=True, exist_ok=True)
    counts = {**{f"data_batch_{number}": train for number in range(1, 6)}, "test_batch": test}
    for name, count in counts.items():
        data = rng.integers(0, 256, (count, 3 * 32 * 32), dtype=np.uint8)
        content = {"data": data, "labels": rng.integers(0, 10, count).tolist()}
        (target / name).write_bytes(pickle.dumps(content))
    (target / "batches.meta").write_bytes(pickle.dumps({"label_names": list("abcdefghij")}))


def words(folder: Path, train: int, other: int) -> None:
    """train.txt, valid.txt and test.txt with sentences in which each word suggests the next."""
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(0)
    vocabulary = ["".join(draw.choice("bdfgklmnprst") + draw.choice("aeiou") for _ in range(3)) for _ in range(150)]

    def sentence() -> Iterator[str]:
        place = draw.randrange(150)
        for _ in range(draw.randint(4, 12)):
            yield vocabulary[place]
            place = (7 * place + draw.randint(0, 5)) % 150

    for name, count in (("train", train), ("valid", other), ("test", other)):
        lines = (" ".join(sentence()) + "\n" for _ in range(count))
        (folder / f"{name}.txt").write_text("".join(lines), encoding="utf-8")


def characters(folder: Path, count: int) -> None:
    """train.bin and val.bin with numbers of characters as uint16, and meta.pkl with the characters."""
    folder.mkdir(parents=True, exist_ok=True)
    alphabet = [chr(32 + number) for number in range(65)]
    text = (np.cumsum(rng.integers(0, 3, count)) % len(alphabet)).astype(np.uint16)
    text[: count * 9 // 10].tofile(folder / "train.bin")
    text[count * 9 // 10 :].tofile(folder / "val.bin")
    numbers = {character: number for number, character in enumerate(alphabet)}
    meta = {"vocab_size": len(alphabet), "itos": dict(enumerate(alphabet)), "stoi": numbers}
    (folder / "meta.pkl").write_bytes(pickle.dumps(meta))


def speech(folder: Path, count: int) -> None:
    """Sounds of half a second at 22,050 Hz, and list.txt with "file|what is said" lines."""
    from scipy.io.wavfile import write

    folder.mkdir(parents=True, exist_ok=True)
    seconds = np.arange(11_025) / 22_050
    for number in range(count):
        tones = sum(np.sin(2 * np.pi * pitch * seconds) for pitch in rng.integers(100, 2000, 4))
        write(folder / f"{number}.wav", 22_050, (3000 * tones + 200 * rng.normal(size=11_025)).astype(np.int16))
    lines = [f"{folder}/{number}.wav|this is sound number {number}.\n" for number in range(count)]
    (folder / "list.txt").write_text("".join(lines), encoding="utf-8")


KINDS = {kind.__name__: kind for kind in (images, segments, digits, cifar, words, characters, speech)}

if __name__ == "__main__":
    KINDS[sys.argv[1]](Path(sys.argv[2]), *map(int, sys.argv[3:]))
