"""The user's own numbers: images of 16 bits, whole numbers, decimal commas."""

import io

import numpy as np
import pytest
from PIL import Image

from securedfl.errors import ConfigError, InvalidInputError
from securedfl.federation.config import TrainConfig
from securedfl.federation.train import train
from securedfl.learning.data.folder import read_folder
from securedfl.learning.data.images import decode_one


def test_images_of_16_bits_keep_their_shades_and_numbers_without_a_range_are_refused():
    """Medical images have 16 bits; all that was above 255 became white."""
    shades = np.array([[0, 100, 300, 1000, 30000, 65535]], dtype=np.uint16)

    def saved(array, kind):
        held = io.BytesIO()
        Image.fromarray(array).save(held, kind)
        return held.getvalue

    assert decode_one("scan.png", saved(shades, "PNG")).tolist() == [[0, 0, 1, 3, 117, 255]]
    assert decode_one("scan.tif", saved(shades, "TIFF")).tolist() == [[0, 0, 1, 3, 117, 255]]
    assert decode_one("scan.png", saved(shades, "PNG"), mode="RGB").shape == (1, 6, 3)
    for array in (shades.astype(np.float32) / 65535, shades.astype(np.int32)):
        with pytest.raises(InvalidInputError, match=r"scan.tif: .* no shades of a known range"):
            decode_one("scan.tif", saved(array, "TIFF"))


@pytest.mark.parametrize(("dtype", "shape"), [(np.int64, (60, 5)), (np.uint16, (60, 1, 8, 8))])
def test_whole_numbers_that_no_model_takes_are_told(tmp_path, dtype, shape):
    x = np.random.default_rng(0).integers(0, 200, shape).astype(dtype)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", (x.reshape(60, -1)[:, 0] > 100).astype(int))
    config = TrainConfig.resolve({"dataset": str(tmp_path), "peers": 3, "rounds": 1, "out": str(tmp_path / "run")})
    with pytest.raises(ConfigError, match=r"whole numbers, and model = .* save them as float32"):
        train(config)


def test_decimal_commas_are_found_where_the_first_row_has_none(tmp_path):
    rows = [f"{value};{k};{'ill' if k % 2 else 'well'}" for k, value in enumerate(["37", "36,5", "38,1", "39"] * 5)]
    (tmp_path / "table.csv").write_text("\n".join(["temp;age;label", *rows]))
    found = read_folder(tmp_path / "table.csv")
    assert found.x.shape[1] == 2
