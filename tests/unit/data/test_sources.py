from __future__ import annotations

import json
import subprocess
import sys

import pytest

from roll_core.builtin.sources.dataset import DatasetSource
from roll_core.builtin.sources.rows import RowsSource
from roll_core.contracts import Source
from roll_core.errors import DataError

ROWS = [{"prompt": f"q{i}", "reference": {"n": i} if i else {"other": "x"}} for i in range(5)]


def write_jsonl(path, rows=ROWS):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def rows_of(source):
    return [dict(source[i]) for i in range(len(source))]


@pytest.fixture
def hf_set(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return datasets.Dataset.from_list([{"prompt": f"q{i}", "reference": str(i)} for i in range(5)])


def test_jsonl_rows_are_exactly_what_the_file_says(tmp_path):
    source = DatasetSource(path=str(write_jsonl(tmp_path / "a.jsonl")))
    assert isinstance(source, Source)
    # a schema for all rows would have added "n": null and "other": null
    assert rows_of(source) == ROWS
    assert rows_of(DatasetSource(path=str(write_jsonl(tmp_path / "b.json")))) == ROWS


def test_blank_lines_and_a_byte_order_mark_are_no_rows(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"prompt": "\xc3\xa9"}\n\n  \n{"prompt": "b"}')
    assert rows_of(DatasetSource(path=str(path))) == [{"prompt": "é"}, {"prompt": "b"}]


def test_json_list(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(ROWS, indent=2))
    assert rows_of(DatasetSource(path=str(path))) == ROWS


def test_csv_values_stay_text(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('prompt,reference\n"a, b",007\nc,1e5\n')
    expected = [{"prompt": "a, b", "reference": "007"}, {"prompt": "c", "reference": "1e5"}]
    assert rows_of(DatasetSource(path=str(path))) == expected


def test_parquet_and_arrow(tmp_path, hf_set):
    expected = list(hf_set)
    hf_set.to_parquet(tmp_path / "a.parquet")
    hf_set.save_to_disk(tmp_path / "saved")
    (file,) = (tmp_path / "saved").glob("*.arrow")
    for path in (tmp_path / "a.parquet", tmp_path / "saved", file):
        assert rows_of(DatasetSource(path=str(path))) == expected


def test_a_saved_dict_has_splits(tmp_path, hf_set):
    import datasets

    datasets.DatasetDict(train=hf_set, test=hf_set.select([0])).save_to_disk(tmp_path / "saved")
    assert len(DatasetSource(path=str(tmp_path / "saved"))) == 5
    assert len(DatasetSource(path=str(tmp_path / "saved"), split="test")) == 1
    with pytest.raises(DataError, match=r"has no split 'tset'; did you mean 'test'\? splits: train, test"):
        DatasetSource(path=str(tmp_path / "saved"), split="tset")


def test_a_folder_of_data_files(tmp_path, hf_set):
    (tmp_path / "folder").mkdir()
    hf_set.to_parquet(tmp_path / "folder" / "train-0.parquet")
    assert len(DatasetSource(path=str(tmp_path / "folder"))) == 5


@pytest.mark.parametrize("index", [-1, 5, 500])
def test_wrong_indices(tmp_path, index):
    for source in (DatasetSource(path=str(write_jsonl(tmp_path / "a.jsonl"))), RowsSource(rows=ROWS)):
        with pytest.raises(IndexError):
            source[index]


def test_missing_file_names_near_ones(tmp_path):
    write_jsonl(tmp_path / "train.jsonl")
    with pytest.raises(DataError, match=r"trian\.jsonl does not exist; did you mean .*/train\.jsonl\?"):
        DatasetSource(path=str(tmp_path / "trian.jsonl"))
    with pytest.raises(DataError, match=r"does not exist; .* holds: train\.jsonl"):
        DatasetSource(path=str(tmp_path / "sub" / "other.parquet"))
    with pytest.raises(DataError, match="does not exist"):
        DatasetSource(path=str(tmp_path / "no_ending"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"prompt": "x"', r"line 3: not valid JSON \(Expecting"),
        (b"[1, 2]", r"line 3: list, every line must hold one JSON object"),
        (b'{"prompt": "\xff"}', r"line 3: not valid JSON \('utf-8' codec"),
        (b"plain text " * 50, r"line 3: not valid JSON .*plain text.*\.\.\.$"),
    ],
)
def test_the_first_bad_line_is_named(tmp_path, line, message):
    path = tmp_path / "bad.jsonl"
    path.write_bytes(b'{"prompt": "a"}\n\n' + line + b'\n{"prompt": "b"}\nworse\n')
    with pytest.raises(DataError, match=message) as caught:
        DatasetSource(path=str(path))
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", "", "holds no rows"),
        ("a.json", "[]", "holds no rows"),
        ("a.csv", "prompt,reference\n", "holds no rows"),
        ("a.json", '[{"a": 1}, 2]', "entry 1 is int, every entry must be an object"),
        ("a.json", '[{"a": 1}', "not valid JSON"),
        ("a.csv", "prompt,reference\na,b\nc\n", "line 3: 1 fields, the header has 2"),
        ("a.csv", 'prompt\n"a', "not valid CSV"),
        ("a.parquet", "not parquet", r"\(parquet\) cannot be loaded"),
        ("a.arrow", "not arrow", r"\(arrow\) cannot be loaded"),
        ("a.jsnl", "{}", r"cannot tell the format .*did you mean '\.jso?n?l?'"),
    ],
)
def test_malformed_files(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        DatasetSource(path=str(path))


def test_a_format_can_be_given(tmp_path):
    path = write_jsonl(tmp_path / "data.txt")
    assert len(DatasetSource(path=str(path), format="jsonl")) == 5


@pytest.mark.parametrize("option", [{"name": "main"}, {"split": "test"}, {"revision": "v1"}])
def test_options_without_meaning_are_refused(tmp_path, option):
    path = write_jsonl(tmp_path / "a.jsonl")
    with pytest.raises(DataError, match=rf"read as jsonl, where {next(iter(option))} has no meaning"):
        DatasetSource(path=str(path), **option)


def test_a_hub_failure_is_one_clear_error(monkeypatch):
    datasets = pytest.importorskip("datasets")

    def offline(*args, **kwargs):
        raise ConnectionError("no route")

    monkeypatch.setattr(datasets, "load_dataset", offline)
    with pytest.raises(DataError, match=r"'owner/set' \(no local file or folder; tried the hub\) .*no route"):
        DatasetSource(path="owner/set")


def test_hub_options_are_passed_on(monkeypatch):
    datasets = pytest.importorskip("datasets")
    seen = {}
    monkeypatch.setattr(datasets, "load_dataset", lambda *args, **kwargs: seen.update(args=args, **kwargs) or ROWS)
    assert len(DatasetSource(path="owner/set", name="main", split="test[:5]", revision="v1")) == 5
    assert seen == {"args": ("owner/set", "main"), "split": "test[:5]", "revision": "v1"}


def test_no_rows_given():
    with pytest.raises(DataError, match="empty list"):
        RowsSource(rows=[])


def test_sources_load_nothing_heavy():
    code = (
        "import sys, roll_core.data, roll_core.builtin.sources.dataset, roll_core.builtin.sources.rows;"
        "print(sorted({'torch', 'transformers', 'datasets', 'pyarrow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
