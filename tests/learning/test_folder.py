"""A folder of the user's own: tables, images and the hub's layout, and what is wrong with a folder."""

import gzip
import io

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from PIL import Image
from typer.testing import CliRunner

from securedfl.cli import app
from securedfl.errors import ConfigError, InvalidInputError
from securedfl.federation.config import TrainConfig
from securedfl.federation.task import make_task
from securedfl.federation.train import train
from securedfl.learning.data.dealing import hold_back
from securedfl.learning.data.folder import is_path, read_folder
from securedfl.learning.data.tables import reading


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def data(tmp_path):
    return tmp_path / "data"


def picture(value, size=(8, 8), mode="L"):
    return Image.new(mode, size, value)


def write_image(path, image):
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)


def write_csv(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def encoded(image):
    buffer = io.BytesIO()
    image.save(buffer, "png")
    return buffer.getvalue()


def write_parquet(path, columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.table(columns), path)


def test_paths_are_told_from_names():
    assert all(map(is_path, ("./wine", "/data/wine", "~/wine", "wine.csv", "wine.PARQUET", "data/wine", "wine.tsv.gz")))
    assert not any(map(is_path, ("digits", "my-set", "cifar10")))


def test_a_table_of_numbers_and_texts(data):
    write_csv(data / "a.csv", ["age,colour,ok,who,kind", "1,red,true,x,yes", "3,blue,false,y,no"])
    write_csv(data / "b.csv", ["kind,age,colour,ok,who", "no,5.0,red,true,x"])
    found = read_folder(data, label="kind", user="who")
    assert (found.name, found.names, found.classes) == ("data", ("no", "yes"), 2)
    assert found.y.tolist() == [1, 0, 0]
    assert found.users.tolist() == [0, 1, 0]
    age = (np.array([1, 3, 5]) - 3) / np.sqrt(8 / 3)
    np.testing.assert_allclose(found.x, np.stack([age, [0, 1, 0], [1, 0, 1], [1, 0, 1]], axis=1), rtol=1e-6)
    only = read_folder(data, label="kind", features=["ok"])
    assert only.x.tolist() == [[1], [0], [1]]


def test_numbers_are_scaled_by_the_rows_that_peers_get(data):
    write_csv(data / "train.csv", ["v,label", "1,0", "3,1"])
    write_csv(data / "test.csv", ["v,label", "1000,1"])
    write_csv(data / "validation.csv", ["v,label", "7,1"])
    told = []
    found = read_folder(data, report=told.append)
    assert found.common.tolist() == [True, False, False]
    assert found.x[:, 0].tolist() == [998, -1, 1]
    assert "1 files" in told[0]
    assert "validation" in told[0]


def test_images_in_folders_of_classes(data):
    for number in range(4):
        write_image(data / "train" / "cat" / f"{number}.png", picture(number))
        write_image(data / "train" / "test tubes" / f"{number}.png", picture(255))
    write_image(data / "test" / "cat" / "0.png", picture(51))
    (data / "README.md").write_text("about")
    found = read_folder(data)
    assert found.names == ("cat", "test tubes")
    assert found.shape == (1, 8, 8)
    assert found.common.sum() == 1
    np.testing.assert_allclose(found.x[found.common], 0.2)
    write_image(data / "train" / "cat" / "9.png", picture((255, 0, 0), mode="RGB"))
    assert read_folder(data).shape == (3, 8, 8)


@pytest.mark.parametrize("as_struct", [True, False])
def test_the_hubs_layout_with_an_image_column(data, as_struct):
    images = [encoded(picture(value)) for value in (0, 255, 102)]
    column = [{"bytes": image, "path": None} for image in images] if as_struct else images
    write_parquet(data / "train-0.parquet", {"image": column, "label": [4, 7, 4], "caption": ["a", "b", "c"]})
    found = read_folder(data)
    assert found.names == ("4", "7")
    np.testing.assert_allclose(found.x[:, 0, 0, 0], [0, 1, 0.4])


def test_nothing_of_a_users_own_data_is_written(data, tmp_path):
    write_csv(data / "a.csv", ["v,label", "1,0", "3,1"])
    before = sorted(tmp_path.rglob("*"))
    read_folder(data)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_part_is_held_back_for_everybody(data):
    write_csv(data / "a.csv", ["v,label", *(f"{k},{k % 2}" for k in range(100))])
    settings = {"dataset": str(data), "peers": 4, "protocol": "shares"}
    config = TrainConfig.resolve(settings)
    assert (config.model, config.held_back, config.dealing, config.subject) == ("mlp", 0.1, "even", "data")
    task = make_task(config)
    assert (len(task.common), len(task.dataset)) == (10, 90)
    assert not np.isin(task.common.x, task.dataset.x).any()
    assert sum(task.samples) + len(task.tested().samples) == 90
    again = TrainConfig.resolve({**settings, "user": "v", "label": "label"})
    assert again.dealing == "natural"
    with pytest.raises(ConfigError, match="has test files of its own"):
        hold_back(read_folder(data).only(np.arange(4)).__class__(**{**vars(task.dataset), "common": np.ones(90)}), 0.1)


def test_every_model_is_scored_on_the_common_test_set(data, tmp_path):
    write_csv(data / "train.csv", ["v,w,label", *(f"{k},{k * k % 7},{int(k > 60)}" for k in range(120))])
    write_csv(data / "test.csv", ["v,w,label", *(f"{k + 0.5},1,{int(k > 60)}" for k in range(0, 120, 10))])
    settings = {"dataset": str(data), "peers": 4, "rounds": 2, "methods": "local,secured", "protocol": "shares"}
    summary = train(**settings, out=tmp_path / "run")
    found = {name: method.final_common_accuracy for name, method in summary.methods.items()}
    assert {round(value * 12 * (1 if name == "secured" else 4), 9) % 1 for name, value in found.items()} == {0}
    assert "common_accuracy" in (tmp_path / "run" / "metrics.csv").read_text().splitlines()[0]
    moved = TrainConfig.resolve({**settings, "dataset": "/no/such/folder"})
    with pytest.raises(ConfigError, match="there is no file or folder"):
        make_task(moved)


def bad_folders(data):
    """Make one folder for each thing that can be wrong."""
    write_csv(data / "typo.csv", ["v,labl", "1,0", "2,1"])
    write_csv(data / "gap.csv", ["v,label", "1,0", ",1"])
    write_csv(data / "nan.csv", ["v,label", "1.5,0", "nan,1"])
    write_csv(data / "infinite.csv", ["v,label", "1.5,0", "inf,1"])
    write_csv(data / "unlabelled.csv", ["v,label", "1,a", "2,", "3, ", "4,b"])
    stray = ["v,w,label", *(f"{k},{'abc' if k == 3 else k % 4},{k % 2}" for k in range(20))]
    write_csv(data / "stray.csv", stray)
    write_csv(data / "strays" / "a.csv", ["v,label", "1,0"])
    write_csv(data / "strays" / "b.csv", [line.partition(",")[2].replace("w", "v") for line in stray])
    write_csv(data / "kinds" / "a.csv", ["v,label", "1,0"])
    write_csv(data / "kinds" / "b.csv", ["v,label", "red,0"])
    write_csv(data / "twice.csv", ["v,v,label", "1,2,0"])
    (data / "latin.csv").write_bytes("größe,label\n1,0\n".encode("latin-1"))
    (data / "latin-values.csv").write_bytes("w,label\ngrün,0\n".encode("latin-1"))
    write_csv(data / "unnamed.csv", ["1,0", "2,1"])
    write_csv(data / "several.csv", ["v,w x,d,e,label", "1,2,2024-01-01,,0", "2,3,2024-01-02,,1"])
    write_csv(data / "one.csv", ["v,label", "1,0", "2,0"])
    write_csv(data / "only.csv", ["label", "1", "0", "1", "0"])
    write_csv(data / "fraction.csv", ["v,label", "1,0.5", "2,1.5"])
    write_csv(data / "many.csv", ["v,label", *(f"1,c{k}" for k in range(20))])
    write_csv(data / "empty.csv", ["v,label"])
    write_csv(data / "text.csv", ["v,label", *(f"words {k},{k % 2}" for k in range(60))])
    write_csv(data / "date.csv", ["v,label", "2024-01-01,0", "2024-01-02,1"])
    write_csv(data / "columns" / "a.csv", ["v,label", "1,0"])
    write_csv(data / "columns" / "b.csv", ["w,label", "1,0"])
    write_csv(data / "untrained" / "test.csv", ["v,label", "1,0"])
    write_csv(data / "unseen" / "a.csv", ["v,label", "1,a", "1,b", "1,b"])
    write_csv(data / "unseen" / "test.csv", ["v,label", "1,c"])
    write_csv(data / "mixed" / "a.csv", ["v,label", "1,0"])
    write_image(data / "mixed" / "a" / "1.png", picture(0))
    write_image(data / "sizes" / "a" / "1.png", picture(0))
    write_image(data / "sizes" / "b" / "2.png", picture(0, (4, 8)))
    write_image(data / "loose" / "1.png", picture(0))
    write_image(data / "damaged" / "a" / "1.png", picture(0))
    (data / "damaged" / "a" / "2.png").write_bytes(b"no image")
    (data / "nothing").mkdir()
    (data / "other").mkdir()
    (data / "other" / "a.xlsx").write_text("")
    (data / "broken.parquet").write_bytes(b"no parquet")
    (data / "ragged.csv").write_text("v,w,label\n1,2,0\n3,smith\n5,6,1\n")
    (data / "broken.csv.gz").write_bytes(b"no gzip")
    (data / "short.csv.gz").write_bytes(gzip.compress(b"v,label\n1,0\n2,1\n")[:-10])
    write_csv(data / "unnamed.tsv", ["1\t0", "2\t1"])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("typo.csv", r"has no column 'label'; did you mean 'labl'\? \(it has v, labl\)"),
        ("gap.csv", r"column 'v' has 1 empty value \(.*gap.csv, row 2\); fill in what is missing"),
        ("nan.csv", r"'v' has 1 empty value \(.*nan.csv, row 2\)"),
        ("infinite.csv", r"'v' holds NaN or infinity \(.*infinite.csv, row 2\)"),
        (
            "unlabelled.csv",
            r"column 'label' has 2 empty values \(first in .*unlabelled.csv, row 2\); fill in",
        ),
        ("stray.csv", r"'w' holds 'abc' \(.*stray.csv, row 4\), while 19 of its 20 values are numbers.*--features v"),
        ("strays", r"'v' holds 'abc' \(.*b.csv, row 4\), while 19 of its 20 values are numbers"),
        ("kinds", r"the column 'v' holds texts in .*b.csv, but int64 in .*a.csv"),
        ("twice.csv", "two columns that are called 'v'"),
        ("latin.csv", "is not text in UTF-8"),
        ("latin-values.csv", "column 'w' of .* is not text in UTF-8"),
        ("unnamed.csv", "the first line must name the columns"),
        ("several.csv", r"'d' holds date32.*; the column 'e' is empty\. Mend that, or .* --features 'v,w x'"),
        ("one.csv", "all samples of 'one' are of one class, 0"),
        ("only.csv", "no column besides label and user"),
        ("fraction.csv", "holds numbers with fractions"),
        ("many.csv", "20 different values in 20 rows"),
        ("empty.csv", "holds no rows"),
        ("text.csv", "column 'v' has 60 different texts"),
        ("date.csv", "column 'v' holds date32.*or write an app"),
        ("columns", "do not have the same columns: v, w"),
        ("untrained", "there is nothing to train on"),
        ("unseen", "have the class c, which the others do not have"),
        ("mixed", "holds tables .* beside images"),
        ("sizes", r"2.png has 4x8 pixels, but .*1.png has 8x8"),
        ("loose", "lies in no folder of a class"),
        ("damaged", r"2.png: the image cannot be decoded"),
        ("nothing", "it is empty"),
        ("other", "it has 1 x .xlsx"),
        ("broken.parquet", "cannot be read as parquet"),
        ("ragged.csv", r"row 2 of .*ragged\.csv has 2 values for 3 columns; repair or remove it$"),
        ("broken.csv.gz", r"cannot be read as csv\.gz"),
        ("short.csv.gz", r"cannot be read as csv\.gz"),
        ("unnamed.tsv", "the first line must name the columns"),
        ("missing", "there is no file or folder"),
    ],
)
def test_bad_folders_say_what_is_wrong(data, name, message):
    data.mkdir()
    bad_folders(data)
    with pytest.raises((ConfigError, InvalidInputError), match=message):
        read_folder(data / name)


@pytest.mark.parametrize(
    "lines",
    [
        ["größe;weite;label", "1,5;2;ja", "2,5;3;nein", "3,5;1;ja"],
        ["größe\tweite\tlabel", "1.5\t2\tja", "2.5\t3\tnein", "3.5\t1\tja"],
        ["\ufeffgröße, weite, label", "1.5,2,ja", '2.5,3,"nein"', "3.5,1,ja"],
        ["größe|weite|label", "1.5|2|ja", "2.5|3|nein", "3.5|1|ja"],
    ],
)
def test_separators_byte_marks_and_spaces_around_names(data, lines):
    write_csv(data / "d.csv", lines)
    found = read_folder(data)
    assert found.names == ("ja", "nein")
    np.testing.assert_allclose(found.x[:, 0], np.array([-1, 0, 1]) * np.sqrt(1.5), rtol=1e-6)
    assert found.x.shape == (3, 2)


@pytest.mark.parametrize("name", ["d.tsv", "D.CSV.GZ", "d.tsv.gz"])
def test_tabs_and_packed_files(data, name):
    sign = "\t" if "tsv" in name else ","
    text = "\n".join(line.replace("|", sign) for line in ("a, b|w|label", "1.5|2|ja", "2.5|3|nein", "3.5|1|ja"))
    text = text if sign == "\t" else text.replace("a, b", "a")
    data.mkdir()
    packed = name.lower().endswith(".gz")
    (data / name).write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    for place in (data, data / name):
        found = read_folder(place)
        assert found.name.lower() == ("data" if place == data else "d")
        assert found.names == ("ja", "nein")
        np.testing.assert_allclose(found.x[:, 0], np.array([-1, 0, 1]) * np.sqrt(1.5), rtol=1e-6)


def test_a_packed_file_that_would_fill_the_memory_is_refused(data, monkeypatch):
    monkeypatch.setattr(reading, "UNPACKED", 1_000_000)
    data.mkdir()
    head, rows = b"v,label\n", b"0,0\n0,1\n"
    (data / "bomb.csv.gz").write_bytes(gzip.compress(head + rows * 200_000))
    with pytest.raises(InvalidInputError, match=r"unpacks to more than 1,000,000, .* unpack it with gunzip"):
        read_folder(data / "bomb.csv.gz")
    # the same rows are read where they are not packed, and so is a packed table that is large by itself
    (data / "plain.csv").write_bytes(head + rows * 200_000)
    assert len(read_folder(data / "plain.csv")) == 400_000
    values = np.random.default_rng(0).normal(size=100_000)
    (data / "large.csv.gz").write_bytes(gzip.compress(head + b"".join(b"%f,%d\n" % (v, v > 0) for v in values)))
    assert len(read_folder(data / "large.csv.gz")) == 100_000


def test_bytes_that_are_no_text_are_told_in_one_line(data, capfd):
    data.mkdir()
    (data / "a.csv").write_bytes(b"a,b\n" + bytes(range(128, 256)) * 40 + b"\n1,2,3\n")
    with pytest.raises(InvalidInputError, match=r"a\.csv is not text in UTF-8; save it in that encoding$"):
        read_folder(data)
    assert capfd.readouterr() == ("", "")


def test_columns_of_every_kind_of_parquet(data):
    kinds = {
        "decimal": pyarrow.array([1, 2, 3, 4]).cast(pyarrow.decimal128(30, 2)),
        "huge": pyarrow.array([2**64 - 1 - k for k in range(4)], type=pyarrow.uint64()),
        "flag": pyarrow.array([True, False, True, False]),
        "half": pyarrow.array(np.arange(4, dtype=np.float16)),
        "kind": pyarrow.array(["a", "b", "a", "b"]).dictionary_encode(),
        "view": pyarrow.array(["a", "b", "a", "b"], type=pyarrow.string_view()),
        "label": pyarrow.array([True, False, True, False]),
    }
    write_parquet(data / "d.parquet", kinds)
    found = read_folder(data)
    assert found.x.shape == (4, 4 + 2 + 2)
    assert found.names == ("False", "True")
    assert np.isfinite(found.x).all()


def test_columns_are_for_folders_with_tables(data):
    write_image(data / "a" / "1.png", picture(0))
    with pytest.raises(ConfigError, match="leave label, user and features away"):
        read_folder(data, label="x")
    with pytest.raises(ConfigError, match="is no path of one"):
        TrainConfig.resolve({"dataset": "digits", "label": "x"})
    write_csv(data.parent / "t.csv", ["v,label", "1,0", "2,1"])
    with pytest.raises(InvalidInputError, match="cannot be a feature"):
        read_folder(data.parent / "t.csv", features=["label"])


def test_a_table_is_described_without_pictures(data):
    lines = ["v,w,kind", *(f"{k},{k % 5},{'ab'[k % 2]}" for k in range(40))]
    write_csv(data / "train.csv", lines)
    write_csv(data / "test.csv", lines[:5])
    found = CliRunner().invoke(app, ["data", "info", str(data), "--label=kind"])
    assert found.exit_code == 0, found.output
    assert "2: a (22), b (22)" in found.stdout
    assert "test.csv and 1 more" in found.stdout
    assert "common test" in found.stdout
    assert found.stdout.splitlines()[-1].startswith(("a: ", "b: "))
    refused = CliRunner().invoke(app, ["data", "info", str(data), "--label=kind", "--svg", str(data / "a.svg")])
    assert "have no picture; leave --svg away" in refused.stderr
