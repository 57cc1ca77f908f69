"""The inventory of host calls: the packaged file, stand-ins for engines, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from aisim_v41.errors import SchemaError
from aisim_v41.evidence.host_calls import OTHER_ENGINE_ERROR, load_host_calls, read_host_calls

FILE = Path(__file__).resolve().parents[2] / "profiles/defaults/host_calls.yaml"


def test_another_engine_gets_these_counts_and_a_wider_error():
    own, error = load_host_calls("sglang")
    lent, wider = load_host_calls("vllm")
    assert lent is own
    assert wider == pytest.approx(error + OTHER_ENGINE_ERROR)


def test_a_kind_with_its_ratio_comes_before_the_kind_and_the_default():
    calls, _ = load_host_calls("sglang")
    full, ratio_1, other = (
        calls.calls("index_select", "decode", kind, ratio)
        for kind, ratio in (("full", 2), ("full", 1), ("reuse", 1))
    )
    assert full == other == (0.0, 0.0, 0.0)
    assert ratio_1 == (3.0, 12.0, 0.0)
    assert calls.calls("draft_tap", "decode", "", 0) == calls.other


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("schema: 1", "schema: 2", "schema is 2, this version reads 1"),
        ("engines:", "engine:", "no field 'engine'; nearest: engines"),
        ("    piece:", "    pieces:", "no field 'pieces'; nearest: piece"),
        ('    build: "1aa0e962b206"\n', "", "engines.sglang.build is missing"),
        ("error_relative: 0.30", "error_relative: 1.5", "error_relative must be between 0 and 1"),
        ("piece: [0, 1, 0]", "piece: [0, 1]", "three numbers from 0"),
        ("piece: [0, 1, 0]", "piece: [0, -1, 0]", "three numbers from 0"),
        ("      q_norm:", "      q_norms:", "no field 'q_norms'; nearest: q_norm"),
        ("breaks: [q_down,", "breaks: [q_downs,", "no operator 'q_downs'; nearest: q_down"),
        ("      decode: [0, 110, 0]", "      decodes: [0, 110, 0]", "no field 'decodes'"),
        ("window_only: [16, 0, 0]", "windowed: [16, 0, 0]", "no kind of layer 'windowed'"),
        ("{default: [0, 2, 2]}", "{full: [0, 2, 2]}", "compress_pool.decode.default is missing"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, old: str, new: str, message: str):
    text = FILE.read_text(encoding="utf-8")
    assert old in text
    path = tmp_path / "host_calls.yaml"
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(SchemaError, match=message) as caught:
        read_host_calls(path)
    assert str(path) in str(caught.value)
