"""Codings: sites that read their own tables mean the same by the same numbers, and new samples can be scored."""

import json
import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from typer.testing import CliRunner

from securedfl import Coding, load, read_features, read_folder, train
from securedfl.cli import app
from securedfl.errors import ConfigError, InvalidInputError
from securedfl.learning.data.coding import Number, Texts, Truth, digest, in_order, noting
from tests.learning.test_folder import picture, write_csv, write_image

A = ["age,sex,smokes,outcome", "30,f,true,mild", "50,m,false,none", "40,f,false,none"]
B = ["age,sex,smokes,outcome", "60,m,true,severe", "80,d,true,none"]


@pytest.fixture
def sites(tmp_path):
    for name, lines in (("a", A), ("b", B)):
        write_csv(tmp_path / f"{name}.csv", lines)
    return [tmp_path / f"{name}.csv" for name in "ab"]


def test_sites_that_follow_one_coding_give_what_one_table_of_all_gives(sites, tmp_path):
    write_csv(tmp_path / "all.csv", [*A, *B[1:]])
    whole = read_folder(tmp_path / "all.csv", label="outcome")
    coding = Coding.together(read_folder(site, label="outcome").coding for site in sites)
    parts = [read_folder(site, coding=coding) for site in sites]
    assert coding.classes == whole.names == ("mild", "none", "severe")
    assert np.concatenate([part.y for part in parts]).tolist() == whole.y.tolist()
    np.testing.assert_allclose(np.concatenate([part.x for part in parts]), whole.x, rtol=1e-6)
    assert {part.classes for part in parts} == {3}
    # each by itself would have called "none" 1 and 0, and the other sex 1 and 2
    assert [read_folder(site, label="outcome").y.tolist() for site in sites] == [[0, 1, 1], [1, 0]]


def test_a_coding_is_a_file_that_people_can_read(sites, tmp_path):
    coding, path = read_folder(sites[0], label="outcome").coding, tmp_path / "coding.json"
    coding.save(path)
    assert Coding.load(path) == coding
    assert json.loads(path.read_text())["features"][1] == {"kind": "texts", "name": "sex", "texts": ["f", "m"]}
    np.testing.assert_array_equal(read_folder(sites[0], coding=path).x, read_folder(sites[0], label="outcome").x)
    assert coding.told(scaled=False).splitlines() == [
        "outcome: mild, none",
        "age: number",
        "sex: f, m",
        "smokes: true or false",
    ]
    assert pickle.loads(pickle.dumps(coding)) == coding  # noqa: S301 - worker processes get data sets so


def test_new_samples_need_no_label(sites, tmp_path):
    data = read_folder(sites[0], label="outcome")
    write_csv(tmp_path / "new.csv", ["when,smokes,age,sex", "today,true,30,f"])
    np.testing.assert_array_equal(read_features(tmp_path / "new.csv", data.coding), data.x[:1])
    write_csv(tmp_path / "new.csv", ["smokes,age", "true,30"])
    with pytest.raises(InvalidInputError, match="no column 'sex'"):
        read_features(tmp_path / "new.csv", data.coding)


def test_what_a_coding_does_not_have_is_told_with_its_place(sites, tmp_path):
    coding = read_folder(sites[0], label="outcome").coding
    with pytest.raises(InvalidInputError, match=r"'sex' is 'd' in .*b.csv, row 2.*it has f, m.*data coding"):
        read_folder(sites[1], coding=coding)
    write_csv(tmp_path / "c.csv", [A[0], "1,f,true,severe"])
    with pytest.raises(InvalidInputError, match=r"the label is 'severe' in row 1 .*it has mild, none"):
        read_folder(tmp_path / "c.csv", coding=coding)
    write_csv(tmp_path / "c.csv", [A[0], "old,f,true,mild"])
    with pytest.raises(InvalidInputError, match=r"'age' holds 'old' in .*c.csv, row 1, but the coding has numbers"):
        read_folder(tmp_path / "c.csv", coding=coding)
    write_csv(tmp_path / "c.csv", [A[0], "1,2,yes,mild"])
    with pytest.raises(InvalidInputError, match=r"'sex' holds '2' .* has texts"):
        read_folder(tmp_path / "c.csv", coding=coding)
    write_csv(tmp_path / "c.csv", [A[0], "1,f,yes,mild"])
    with pytest.raises(InvalidInputError, match=r"'smokes' holds 'yes' .* truth values"):
        read_folder(tmp_path / "c.csv", coding=coding)


def test_a_site_may_have_one_class_only(sites, tmp_path):
    coding = read_folder(sites[0], label="outcome").coding
    write_csv(tmp_path / "c.csv", [A[0], "1,f,true,none"])
    assert read_folder(tmp_path / "c.csv", coding=coding).y.tolist() == [1]


def test_images_have_classes_only(tmp_path):
    for name in ("10", "9"):
        write_image(tmp_path / "all" / name / "0.png", picture(0))
    write_image(tmp_path / "site" / "10" / "0.png", picture(7))
    coding = read_folder(tmp_path / "all").coding
    assert (coding.classes, coding.label, coding.features) == (("9", "10"), None, ())
    assert read_folder(tmp_path / "site", coding=coding).y.tolist() == [1]
    with pytest.raises(ConfigError, match="not of a table"):
        read_features(tmp_path / "site", coding)


def test_wrong_codings_are_refused(sites, tmp_path):
    coding, path = read_folder(sites[0], label="outcome").coding, tmp_path / "coding.json"
    with pytest.raises(ConfigError, match="leave them away"):
        read_folder(sites[0], coding=coding, label="sex")
    for content in ("{", "[]", '{"classes": ["a", "b"], "colour": 1}', '{"classes": ["a", "b"], "features": [1]}'):
        path.write_text(content)
        with pytest.raises(InvalidInputError, match="holds no coding"):
            Coding.load(path)
    for classes in ([], ["a"], ["a", "a"]):
        path.write_text(json.dumps({"classes": classes}))
        with pytest.raises(InvalidInputError, match="two classes or more"):
            Coding.load(path)
    path.write_text(json.dumps({"classes": ["a", "b"], "version": 9}))
    with pytest.raises(InvalidInputError, match="of version 9"):
        read_folder(sites[0], coding=str(path))
    with pytest.raises(InvalidInputError, match="cannot be read"):
        Coding.load(tmp_path / "none.json")
    with pytest.raises(ConfigError, match="is of images"):
        read_folder(sites[0], coding=Coding(classes=("a", "b")))


DOSE = {"kind": "number", "name": "dose", "mean": 3.0, "deviation": 2.0, "count": 10}
SEX = {"kind": "texts", "name": "sex", "texts": ["f", "m"]}


@pytest.mark.parametrize(
    ("features", "reason"),
    [
        ([{**DOSE, "deviation": 1e200}], r"column 'dose' the deviation 1e\+200, .* between 0 and 1e\+100"),
        ([{**DOSE, "deviation": -1}], "column 'dose' the deviation -1,"),
        ([{**DOSE, "mean": -1e200}], r"column 'dose' the mean -1e\+200,"),
        ([{**DOSE, "count": -3}], "column 'dose' a count that does not lie between 1 and"),
        ([{**DOSE, "count": 0}], "column 'dose' a count"),
        ([{**DOSE, "count": 10**35}], "column 'dose' a count"),
        ([{**DOSE, "count": 10**400}], "column 'dose' a count|holds no coding"),
        ([DOSE, SEX, DOSE], "the column 'dose' twice"),
        ([{**DOSE, "name": "outcome"}], "the column 'outcome' twice"),
        ([{**SEX, "texts": ["f", "m", "f"]}], "column 'sex' the text 'f' twice"),
        ([{**SEX, "texts": []}], "column 'sex' no text"),
    ],
)
def test_codings_that_no_data_can_have_are_refused(tmp_path, features, reason):
    path, fine = tmp_path / "other.json", tmp_path / "fine.json"
    path.write_text(json.dumps({"classes": ["a", "b"], "label": "outcome", "features": features}))
    with pytest.raises(InvalidInputError, match=f"other.json .*({reason})"):
        Coding.load(path)
    fine.write_text(json.dumps({"classes": ["a", "b"], "label": "outcome", "features": [DOSE]}))
    refused = CliRunner().invoke(app, ["data", "coding", str(fine), str(path)])
    assert refused.exit_code == InvalidInputError.exit_code, refused.output


def test_numbers_too_large_to_be_scaled_are_refused(tmp_path):
    write_csv(tmp_path / "a.csv", ["dose,outcome", "1e200,a", "-1e200,b", "1e200,b"])
    with pytest.raises(InvalidInputError, match="'dose' holds numbers that are too large"):
        read_folder(tmp_path / "a.csv", label="outcome")


def test_columns_that_differ_have_no_coding_together(sites, tmp_path):
    write_csv(tmp_path / "c.csv", ["age,sex,outcome", "30,f,mild", "50,m,none"])
    codings = [read_folder(path, label="outcome").coding for path in (sites[0], tmp_path / "c.csv")]
    with pytest.raises(InvalidInputError, match="differ in name, kind or order: smokes"):
        Coding.together(codings)


def test_what_was_read_is_noted_without_scales_unless_they_were_agreed_on(sites, tmp_path):
    write_csv(tmp_path / "c.csv", [A[0], "31,f,true,mild", "99,m,false,none"])
    digests = []
    for path in (sites[0], tmp_path / "c.csv", sites[1]):
        with noting() as read:
            read_folder(path, label="outcome")
        digests.append(digest(read))
    assert digests[0] == digests[1] != digests[2]
    with noting() as read:
        read_folder(sites[0], coding=read_folder(sites[0], label="outcome").coding)
    # once found, once followed
    assert ["mean" in text for text in read] == [False, True]
    assert digest([]) == ""


@pytest.mark.parametrize(
    "codings",
    [
        [Coding(classes=("a", "b, c")), Coding(classes=("a, b", "c"))],
        [Coding(classes=("a", "b"), features=(Texts("sex", texts),)) for texts in (("f, m", "d"), ("f", "m, d"))],
        [Coding(classes=("a", "b")), Coding(classes=("a", "b"), label="class")],
        [Coding(classes=("a", "b"), features=(one,)) for one in (Truth("v"), Texts("v", ("true or false",)))],
    ],
)
def test_codings_that_differ_have_digests_that_differ(codings):
    assert len({digest([coding.compared(scaled=True)]) for coding in codings}) == 2


def test_the_order_in_which_sites_are_put_together_is_no_difference():
    sites = [Coding(classes=("a", "b"), features=(Number("v", m, m / 3, 7),)) for m in (0.1, 0.2, 0.7)]
    both = [Coding.together(order).compared(scaled=True) for order in (sites, sites[::-1])]
    assert both[0] == both[1]


def test_a_deviation_too_small_to_divide_by_is_refused(tmp_path):
    write_csv(tmp_path / "new.csv", ["dose", "5"])
    coding = Coding(classes=("a", "b"), label="outcome", features=(Number("dose", 3.0, 1e-300, 10),))
    with pytest.raises(InvalidInputError, match="'dose' holds numbers that are too large to be scaled"):
        read_features(tmp_path / "new.csv", coding)


def test_a_coding_without_features_is_refused_unless_the_table_has_images(sites, tmp_path):
    coding = Coding(classes=("mild", "none"), label="outcome")
    with pytest.raises(ConfigError, match=r"a.csv has no image column, but the coding has no features"):
        read_folder(sites[0], coding=coding)
    write_image(tmp_path / "0.png", picture(0))
    rows = {"image": [(tmp_path / "0.png").read_bytes()] * 2, "outcome": ["none", "mild"]}
    pq.write_table(pa.table(rows), tmp_path / "c.parquet")
    assert read_folder(tmp_path / "c.parquet", coding=coding).y.tolist() == [1, 0]
    told = Coding(classes=("mild", "none"), label="outcome", features=(Truth("image"),))
    with pytest.raises(ConfigError, match=r"c.parquet has images, but the coding has columns of features"):
        read_folder(tmp_path / "c.parquet", coding=told)


def test_no_codings_together_are_refused():
    with pytest.raises(InvalidInputError, match="no coding to put together"):
        Coding.together([])


def test_names_are_in_order():
    assert in_order(["10", "9", "-1"]) == ("-1", "9", "10")
    assert in_order(["b", "10", "9"]) == ("10", "9", "b")


def test_the_command_makes_one_for_all_sites(sites, tmp_path):
    run, whole = CliRunner(), tmp_path / "coding.json"
    for site in sites:
        out = str(site.with_suffix(".json"))
        made = run.invoke(app, ["data", "coding", str(site), "--label=outcome", "--out", out])
        assert made.exit_code == 0, made.output
    made = run.invoke(app, ["data", "coding", *(str(site.with_suffix(".json")) for site in sites), "--out", str(whole)])
    assert made.exit_code == 0, made.output
    assert "outcome: mild, none, severe" in made.stdout
    assert "sex: d, f, m" in made.stdout
    assert {read_folder(site, coding=whole).classes for site in sites} == {3}
    shown = run.invoke(app, ["data", "coding", str(sites[0]), "--label=outcome", "--features=age"])
    assert [one["name"] for one in json.loads(shown.stdout)["features"]] == ["age"]
    np.save(tmp_path / "x.npy", np.zeros((4, 2)))
    np.save(tmp_path / "y.npy", np.arange(4))
    refused = run.invoke(app, ["data", "coding", str(tmp_path)])
    assert "need no coding" in refused.stderr


def test_a_run_keeps_its_coding_so_that_its_model_can_score_new_rows(tmp_path):
    write_csv(tmp_path / "train.csv", ["v,w,kind", *(f"{k},{k % 7},{'ab'[k > 60]}" for k in range(120))])
    train(dataset=str(tmp_path / "train.csv"), label="kind", rounds=8, methods="secured", peers=3, out=tmp_path / "run")
    write_csv(tmp_path / "new.csv", ["w,v", "3,5", "3,110"])
    x = read_features(tmp_path / "new.csv", tmp_path / "run" / "coding.json")
    model, coding = load(tmp_path / "run"), Coding.load(tmp_path / "run" / "coding.json")
    assert [coding.classes[k] for k in model(torch.from_numpy(x)).argmax(1)] == ["a", "b"]
    assert "read_features" in (tmp_path / "run" / "README.md").read_text()
    shown = CliRunner().invoke(app, ["data", "info", str(tmp_path / "train.csv"), "--label=kind"])
    assert "features    v: number, mean 59.5, deviation 34.6" in shown.stdout
