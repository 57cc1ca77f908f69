"""``aisim-v41 fpm import``: what becomes of files, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from aisim_v41.forwards.store import read_table
from tests.cli.conftest import BUILD, csv, inside
from tests.io import pairs
from tests.io.files import json_lines, load, measured, message, point, rank_file


def answer(*arguments: str):
    done = inside("fpm", "import", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def test_a_second_import_adds_to_the_table(table: Path):
    found = read_table(table)
    assert found.statuses() == {"ok": 48, "out_of_memory": 2}
    assert {record.run for record in found.records} == {"one", "two"}
    assert [source["file"] for source in found.sources] == ["one.csv", "two.csv"]
    assert all(len(source["sha256"]) == 64 for source in found.sources)
    assert found.identity.build.timer == "sync_wall"


def test_the_same_file_twice_changes_nothing(root: Path, table: Path, tmp_path: Path):
    before = read_table(table)
    told = inside("fpm", "import", str(root / "one.csv"), *BUILD, "--out", str(root))
    assert told.returncode == 0
    assert "which holds 50 records" in told.stdout
    assert read_table(table).records == before.records


def test_other_values_of_a_run_are_refused(table: Path, tmp_path: Path):
    changed = csv(tmp_path / "one.csv", "one", 1.5)
    told = inside("fpm", "import", str(changed), *BUILD, "--out", str(table.parents[3]))
    assert told.returncode == 2
    assert "of run 'one'" in told.stderr
    assert len(read_table(table).records) == 50


def test_a_dry_run_writes_nothing(tmp_path: Path):
    told = answer(str(csv(tmp_path / "a.csv")), *BUILD, "--dry-run")
    assert told["folder"] is None
    assert told["records"] == 25
    assert told["statuses"] == {"ok": 24, "out_of_memory": 1}
    assert told["identity"]["execution"]["decode_execution"] == "eager"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.csv"]


def test_a_dry_run_tells_what_the_table_would_hold(root: Path, table: Path, tmp_path: Path):
    same = str(root / "one.csv")
    assert answer(same, *BUILD, "--out", str(root), "--dry-run")["records"] == 50
    added = csv(tmp_path / "three.csv", "three", 1.01)
    assert answer(str(added), *BUILD, "--out", str(table), "--dry-run")["records"] == 75
    changed = csv(tmp_path / "one.csv", "one", 1.5)
    told = inside("fpm", "import", str(changed), *BUILD, "--out", str(root), "--dry-run")
    assert (told.returncode, told.stdout) == (2, "")
    assert "of run 'one'" in told.stderr
    assert len(read_table(table).records) == 50


def test_a_copy_of_a_file_is_not_another_run(root: Path, table: Path, tmp_path: Path):
    lines = [line.split(",") for line in (root / "one.csv").read_text().splitlines()]
    content = "\n".join(",".join(cells[:6]) for cells in lines[:9]) + "\n"
    one, copy = tmp_path / "a.csv", tmp_path / "copy.csv"
    one.write_text(content)
    copy.write_text(content)
    told = inside("fpm", "import", str(one), str(copy), *BUILD, "--dry-run")
    assert told.returncode == 2
    assert "copy.csv holds what a.csv holds" in told.stderr
    assert answer(str(one), *BUILD, "--out", str(tmp_path))["records"] == 8
    told = inside("fpm", "import", str(copy), *BUILD, "--out", str(tmp_path))
    assert told.returncode == 2
    assert "copy.csv holds what a.csv holds" in told.stderr


def test_a_table_takes_its_own_identity_only(table: Path, tmp_path: Path):
    third = csv(tmp_path / "three.csv", "three")
    other = [word if word != "1.2" else "1.3" for word in BUILD]
    told = inside("fpm", "import", str(third), *other, "--out", str(table))
    assert told.returncode == 2
    assert "engine_build" in told.stderr
    assert "1.2 | 1.3" in told.stderr
    assert len(read_table(table).records) == 50


def test_everything_that_is_missing_is_named_at_once(tmp_path: Path):
    told = inside("fpm", "import", str(csv(tmp_path / "a.csv")), "--engine", "sglang", "--dry-run")
    assert told.returncode == 2
    assert told.stderr.count("\n") == 1
    assert (
        "missing: --gpu, --tp, --decoder-replay, --checkpoint, --engine-build, --image, "
        "--topology, --timer." in told.stderr
    )


def test_an_identity_file_says_the_same(tmp_path: Path):
    file = tmp_path / "identity.yaml"
    file.write_text(
        "gpu: gb300\ntp: 4\nengine: sglang\ndecoder_replay: off\n"
        "set: {decode_execution: eager}\ncheckpoint: published\nengine_build: '1.2'\n"
        "image: none\ntopology: one node, 4 x GB300\ntimer: sync_wall\n"
        "settings: {nccl: 2.29.7}\n"
    )
    measured = str(csv(tmp_path / "a.csv"))
    by_file = answer(measured, "--identity", str(file), "--dry-run")
    by_option = answer(measured, *BUILD, "--setting", "nccl=2.29.7", "--dry-run")
    assert by_file["slug"] == by_option["slug"]
    assert by_file["identity"] == by_option["identity"]
    won = answer(measured, "--identity", str(file), "--timer", "http", "--dry-run")
    assert won["identity"]["build"]["timer"] == "http"
    whole = file.read_text()
    for changed, part in (
        (whole + "clock: fast\n", "no field 'clock'"),
        (whole.replace("decode_execution: eager", "decoder_replay: on"), "set.decoder_replay"),
        (whole.replace("tp: 4", "tp: [4]"), "tp = [4]: must be a single value"),
        (whole.replace("{nccl: 2.29.7}", "2.29.7"), "settings = '2.29.7': must be a mapping"),
    ):
        file.write_text(changed)
        told = inside("fpm", "import", measured, "--identity", str(file), "--dry-run")
        assert told.returncode == 2
        assert part in told.stderr


def test_settings_keep_their_type(tmp_path: Path):
    measured = str(csv(tmp_path / "a.csv"))
    pairs = ("page=256", "share=0.5", "fused=TRUE", "name=x=y", "version=1.2.3")
    options = [word for pair in pairs for word in ("--setting", pair)]
    told = answer(measured, *BUILD, *options, "--dry-run")
    assert told["identity"]["build"]["settings"] == {
        "fused": True, "name": "x=y", "page": 256, "share": 0.5, "version": "1.2.3",
    }  # fmt: skip


def test_skipped_rows_are_told_with_their_reason(tmp_path: Path):
    file = csv(tmp_path / "a.csv")
    file.write_text(file.read_text() + "64,0,prefill,1,,1,one,99,ok\n64,0,prefill\n")
    told = inside("fpm", "import", str(file), *BUILD, "--dry-run")
    assert told.returncode == 0
    assert f"{file}: 25 records, 2 skipped" in told.stdout
    assert "  1 x no time, and no status that says why" in told.stdout
    document = answer(str(file), *BUILD, "--dry-run")
    assert [skip["place"] for skip in document["files"][0]["skipped"]] == ["a.csv:27", "a.csv:28"]


def test_a_source_that_says_otherwise_is_refused(tmp_path: Path):
    file = tmp_path / "bench.jsonl"
    file.write_text(
        json.dumps(
            {"run_name": "a", "batch_size": 1, "input_len": 128, "output_len": 8,
             "prefill_latency": 0.2, "prefill_throughput": 640.0,
             "median_decode_latency": 0.15, "median_decode_throughput": 1 / 0.15,
             "total_latency": 1.25, "overall_throughput": 108.8}
        ) + "\n"
    )  # fmt: skip
    other = [word if word != "sglang" else "vllm" for word in BUILD]
    told = inside("fpm", "import", str(file), *other, "--dry-run")
    assert told.returncode == 2
    assert "the measurements say otherwise: --engine vllm against sglang" in told.stderr


def test_a_log_is_told_its_timer_and_run(tmp_path: Path):
    message = {
        "version": 1, "worker_id": "w", "dp_rank": 0, "counter_id": 1, "wall_time": 0.15,
        "scheduled_requests": {
            "num_decode_requests": 4, "sum_decode_kv_tokens": 8192, "var_decode_kv_tokens": 0.0,
        },
    }  # fmt: skip
    file = tmp_path / "log.jsonl"
    file.write_text(json.dumps(message) + "\n")
    told = answer(str(file), *BUILD, "--run", "tuesday", "--out", str(tmp_path))
    assert told["identity"]["build"]["timer"] == "sync_wall"
    (one,) = read_table(Path(told["folder"])).records
    assert (one.run, one.latency_ms) == ("tuesday", 150.0)
    counted = answer(
        str(file), *BUILD, "--option", "kv_includes_current=true", "--dry-run"
    )  # fmt: skip
    assert counted["records"] == 1
    untold = inside("fpm", "import", str(file), *BUILD[:-2], "--dry-run")
    assert untold.returncode == 2
    assert "missing: --timer." in untold.stderr
    refused = inside("fpm", "import", str(file), *BUILD, "--option", "fake_kv=mark", "--dry-run")
    assert refused.returncode == 2
    assert "dynamo_fpm has no option 'fake_kv'" in refused.stderr


def test_a_step_that_could_not_have_run_is_refused(tmp_path: Path):
    file = tmp_path / "a.csv"
    file.write_text("new_tokens,prefix_tokens,kind,latency_ms\n1,2000000,decode,9.5\n")
    told = inside("fpm", "import", str(file), *BUILD, "--dry-run")
    assert told.returncode == 2
    assert told.stderr.startswith("aisim-v41: a.csv:2: was measured, but could not have run")


def test_sums_that_could_not_have_run_are_refused(tmp_path: Path):
    """Four decodes of a model of 1,048,576 positions read 4 x 1,048,575 at most."""
    file = tmp_path / "log.jsonl"
    for total, code in ((4 * 1_048_575, 0), (4 * 1_048_575 + 1, 2)):
        json_lines(file, [message(load(0, 0, 0, 4, total, contexts=None))])
        told = inside("fpm", "import", str(file), *BUILD, "--dry-run")
        assert told.returncode == code
    assert "could not have run" in told.stderr
    assert "does not fit 4 contexts" in told.stderr


@pytest.mark.parametrize("contexts", [None, 0.0], ids=["sums", "requests"])
def test_decodes_of_an_engine_that_drafts_are_not_known(tmp_path: Path, contexts):
    """Forward pass metrics say one decode where a request verified several rows."""
    file, drafts = tmp_path / "log.jsonl", ("--set", "speculation=dspark", "--dry-run")
    json_lines(file, [message(load(1, 64, 0, 0, 0))])
    assert answer(str(file), *BUILD, *drafts)["records"] == 1
    json_lines(file, [message(load(0, 0, 0, 4, 8192, contexts=contexts))])
    told = inside("fpm", "import", str(file), *BUILD, *drafts)
    assert told.returncode == 2
    assert "log.jsonl:1: dynamo_fpm counts a request that verifies drafts" in told.stderr
    measured = str(csv(tmp_path / "a.csv"))
    assert answer(measured, *BUILD, *drafts)["records"] == 25


def test_rows_of_images_are_not_those_of_a_build_of_text(tmp_path: Path):
    file = tmp_path / "a.csv"
    file.write_text("new_tokens,image_tokens,latency_ms\n640,576,9.5\n")
    told = inside("fpm", "import", str(file), *BUILD, "--dry-run")
    assert told.returncode == 2
    assert "a.csv:2: rows of images, but --modality is text" in told.stderr
    answer(str(file), *BUILD, "--modality", "image", "--out", str(tmp_path))


@pytest.mark.parametrize("name", ["disable_cuda_graph", "enforce_eager"])
def test_eager_steps_are_not_those_of_graphs(tmp_path: Path, name: str):
    measured = str(csv(tmp_path / "a.csv"))
    graphs = [w for w in BUILD if w not in ("--set", "decode_execution=eager")]
    for words, value, wanted in ((BUILD, "false", "full_graph"), (graphs, "true", "eager")):
        setting = ("--setting", f"{name}={value}", "--dry-run")
        told = inside("fpm", "import", measured, *words, *setting)
        assert told.returncode == 2
        assert f"setting {name} = {value}, but decode_execution is " in told.stderr
        assert f"--set decode_execution={wanted}" in told.stderr
    answer(measured, *BUILD, "--setting", f"{name}=true", "--dry-run")
    answer(measured, *graphs, "--setting", f"{name}=false", "--dry-run")


def test_a_file_does_not_speak_for_one_that_is_silent(tmp_path: Path):
    """Of two logs one has two ranks: the other is of another mapping, or lacks one."""
    decodes = load(0, 0, 0, 4, 8192)
    two, one = tmp_path / "two.jsonl", tmp_path / "one.jsonl"
    json_lines(two, [message(decodes, dp_rank=rank) for rank in (0, 1)])
    json_lines(one, [message(decodes, worker_id="v")])
    for files in ((two, one), (one, two)):
        told = inside("fpm", "import", *map(str, files), *BUILD, "--dry-run")
        assert told.returncode == 2
        assert "says dp = 2" in told.stderr
        assert "says nothing of dp" in told.stderr


def test_a_cell_is_chosen_in_the_shell(tmp_path: Path):
    file = pairs.saved(tmp_path, [*pairs.ROWS, *({**row, "tp": 8} for row in pairs.ROWS)])
    untold = inside("fpm", "import", str(file), *BUILD, "--dry-run")
    assert "--option cell.COLUMN=VALUE" in untold.stderr
    told = inside("fpm", "import", str(file), *BUILD, "--option", "cell.tp=16", "--dry-run")
    assert told.returncode == 2
    assert "no cell with {'tp': 16}" in told.stderr
    for options in (["cell=5"], ["cell=5", "cell.tp=8"], ["path=x"], ["engine_args=5"]):
        words = [word for option in options for word in ("--option", option)]
        told = inside("fpm", "import", str(file), *BUILD, *words, "--dry-run")
        assert (told.returncode, told.stdout) == (2, "")
        assert options[0].partition("=")[0] in told.stderr


AISIMULATE = (
    "--tp", "4", "--decoder-replay", "on", "--set", "decode_execution=eager",
    "--checkpoint", "m", "--image", "none", "--topology", "one node, 4 x B200",
)  # fmt: skip


def test_what_a_table_of_aisimulate_says_agrees_with_options_and_policy(tmp_path: Path):
    file = pairs.saved(tmp_path)
    told = answer(str(file), *AISIMULATE, "--option", "cell.tp=4", "--dry-run")
    execution, build = (told["identity"][half] for half in ("execution", "build"))
    assert (execution["decoder_replay"], execution["engram_residency"]) == (True, "hbm")
    assert (execution["gpu"], build["engine_build"]) == ("b200", "0.30.0")
    assert build["timer"] == "scheduler_wall"
    assert "engram_residency" not in build["settings"]
    assert build["settings"]["moe_quant_mode"] == "mxfp4"
    for words, against in (
        (("--set", "engram_residency=host_shared"), "engram_residency host_shared against hbm"),
        (("--decoder-replay", "off"), "--decoder-replay False against True"),
    ):
        told = inside("fpm", "import", str(file), *AISIMULATE, *words, "--dry-run")
        assert told.returncode == 2
        assert f"the measurements say otherwise: {'--set ' * ('--set' in words)}{against}" in (
            told.stderr
        )


def test_values_that_nest_without_end_are_text(tmp_path: Path):
    told = inside("fpm", "import", str(csv(tmp_path / "a.csv")), *BUILD, "--dry-run",
                  "--setting", f"deep={'[' * 100_000}")  # fmt: skip
    assert told.returncode == 2
    assert "Build.settings.deep" in told.stderr


def test_the_folder_one_is_in_has_a_name(tmp_path: Path, monkeypatch):
    rank_file(tmp_path / "benchmark.json", [measured(point(1, "prefill", 1, 64, 0), 0.01)])
    monkeypatch.chdir(tmp_path)
    told = answer(".", *BUILD, "--out", str(tmp_path))
    assert [source["file"] for source in read_table(Path(told["folder"])).sources] == [
        tmp_path.name
    ]
