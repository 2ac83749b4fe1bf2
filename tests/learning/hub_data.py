"""Made-up data sets in the hub's parquet layout: tiny, quickly learned, the same every time."""

import io

import numpy as np
import pyarrow
import pyarrow.parquet
from PIL import Image

IMAGE = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])

LINES = (
    "To be, or not to be: that is the question. ",
    "All the world's a stage, and all the men and women merely players. ",
    "If music be the food of love, play on. ",
)


def encoded(pixels, kind="PNG"):
    """Return the bytes of an image file."""
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, format=kind)
    return stream.getvalue()


def image_column(images):
    """Return the hub's form of images, given as encoded bytes or as pixels."""
    values = [image if isinstance(image, bytes | None) else encoded(image) for image in images]
    return pyarrow.array([{"bytes": value, "path": None} for value in values], type=IMAGE)


def write(path, **columns):
    """Write one parquet file with these columns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def digit_images(labels, random):
    """Return 28x28 images, each with a bar whose place tells the digit."""
    images = random.integers(0, 60, (len(labels), 28, 28), dtype=np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[4:24, 2 * label + 3 : 2 * label + 6] = 255
    return images


def femnist_columns(writers=18, each=20, *, random=None):
    """Return the columns of FEMNIST: digits of some writers, ``each`` of each."""
    random = random or np.random.default_rng(0)
    labels = np.tile(np.arange(each) % 10, writers)
    names = [f"f{writer:04d}_{writer % 7:02d}" for writer in range(writers) for _ in range(each)]
    return {
        "image": image_column(digit_images(labels, random)),
        "writer_id": names,
        "hsf_id": np.zeros(len(labels), np.int64),
        "character": labels,
    }


def shakespeare_columns(roles=18, sequences=14):
    """Return the columns of Shakespeare: one long text for each of some roles."""
    texts = [(LINES[role % len(LINES)] * 99)[role : role + 50 * sequences + 1] for role in range(roles)]
    return {
        "character_id": [f"PLAY_{role % 3}_ROLE_{role}" for role in range(roles)],
        "play": [f"PLAY_{role % 3}" for role in range(roles)],
        "text": texts,
    }


def cifar10_columns(count, *, random=None):
    """Return the columns of CIFAR-10: images whose colour tells the class."""
    random = random or np.random.default_rng(0)
    labels = np.arange(count) % 10
    images = random.integers(0, 60, (count, 32, 32, 3), dtype=np.uint8)
    images[..., 0] += (19 * labels[:, None, None]).astype(np.uint8)
    images[..., 1] += (19 * ((3 * labels) % 10)[:, None, None]).astype(np.uint8)
    return {"img": image_column(images), "label": labels}


def write_all(folder):
    """Write all three data sets into a folder, with what the loaders leave out."""
    random = np.random.default_rng(0)
    few = {
        "image": image_column(digit_images(np.arange(6), random)),
        "writer_id": ["f9999_99"] * 6,
        "hsf_id": np.zeros(6, np.int64),
        "character": np.arange(6),
    }
    letters = {
        "image": image_column(digit_images(np.arange(10), random)),
        "writer_id": ["f0000_00"] * 10,
        "hsf_id": np.zeros(10, np.int64),
        "character": np.arange(10, 20),
    }
    write(folder / "femnist" / "train-00000.parquet", **femnist_columns(random=random))
    write(folder / "femnist" / "train-00001.parquet", **few)
    write(folder / "femnist" / "train-00002.parquet", **letters)
    write(folder / "shakespeare" / "train.parquet", **shakespeare_columns())
    write(folder / "cifar10" / "train.parquet", **cifar10_columns(300, random=random))
    write(folder / "cifar10" / "test.parquet", **cifar10_columns(60, random=random))
    return folder


def write_femnist(folder, **changes):
    """Write FEMNIST of 3 writers, 12 digits each, with some columns changed, and return the folder."""
    write(folder / "femnist" / "train.parquet", **{**femnist_columns(3, 12), **changes})
    return folder


def write_cifar10(folder, train=30, test=20):
    """Write CIFAR-10 of so many images, and return the folder."""
    write(folder / "cifar10" / "train.parquet", **cifar10_columns(train))
    write(folder / "cifar10" / "test.parquet", **cifar10_columns(test))
    return folder
