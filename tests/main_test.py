"""The command: what works, and that each mistake is one message, found in seconds."""

import os
import pathlib
import subprocess
import sys
import time

import pytest
import tiny

from as2jax import main
from as2jax.inference import modes
from as2jax.runtime.errors import InputError

ROOT = pathlib.Path(__file__).resolve().parent.parent
pytestmark = pytest.mark.usefixtures("in_the_repository")
TRIPLET = "configs/wikiqa_triplet.py"


def parsed(*arguments, config=TRIPLET + ":sample"):
  """The config after a command line."""
  return main.parse([f"--config={config}", *arguments])[0]


def refused(*arguments):
  """The message with which the command line is refused."""
  with pytest.raises(InputError) as caught:
    main.parse(arguments)
  message = caught.value.args[0]  # as the command prints it
  assert "Traceback" not in message and "\n" not in message
  return message


@pytest.mark.parametrize(
  "override, key, value",
  [
    ("--config.seeds=(0, 1)", "seeds", (0, 1)),
    ("--config.seeds=3", "seeds", (3,)),
    (
      "--config.optimizer.lr_multipliers=(('encoder/', 0.0),)",
      "optimizer.lr_multipliers",
      (("encoder/", 0.0),),
    ),
    ("--config.evaluation.splits=dev", "evaluation.splits", ("dev",)),
    ("--config.encoder.hidden_dropout=0.0", "encoder.hidden_dropout", 0.0),  # a placeholder
    ("--config.encoder.precision=highest", "encoder.precision", "highest"),
    ("--config.optimizer.rate=1e-3", "optimizer.rate", 1e-3),
    ("--config.loss.margin=1", "loss.margin", 1.0),
    ("--config.batch.packed=false", "batch.packed", False),
    ("--config.batch.row_lengths=(64, 128)", "batch.row_lengths", (64, 128)),
  ],
)
def test_overrides(override, key, value):
  config = parsed(override)
  for name in key.split("."):
    config = config[name]
  assert config == value and type(config) is type(value)


@pytest.mark.parametrize(
  "argv, parts",
  [
    ([], ["--config is missing", ":sample"]),
    (["--config=configs/wikiqa_tripel.py"], ["no file", "did you mean wikiqa_triplet?"]),
    (["--config=pyproject.toml"], ["pyproject.toml is no Python file"]),
    ([f"--config={TRIPLET}:sampel"], ["'sampel' is not known", "did you mean 'sample'?"]),
    (
      [f"--config={TRIPLET}", "--config.optimizer.rat=1"],
      ["optimizer has no key 'rat'", "did you mean 'rate'?"],
    ),
    ([f"--config={TRIPLET}", "--config.epochs.first=1"], ["'first'", "epochs has no key"]),
    ([f"--config={TRIPLET}", "--config.epochs=many"], ["--config.epochs=many", "type int"]),
    ([f"--config={TRIPLET}", "--processes=many"], ["argument --processes: invalid int value"]),
    ([f"--config={TRIPLET}", "--config.batch.packed=maybe"], ["batch.packed=maybe", "bool"]),
    ([f"--config={TRIPLET}", "--config.optimizer=adam"], ["it is a section", "rate"]),
    ([f"--config={TRIPLET}", "epochs=1"], ["no option 'epochs=1'", "--profile, --allow-code and"]),
    (["--config=configs/rerun.py"], ["--config=rerun:runs/x/config.json"]),
    (["--config=rerun:nowhere.json"], ["no file nowhere.json", "into its folder"]),
  ],
)
def test_a_wrong_command_line_is_one_line(argv, parts):
  message = refused(*argv)
  for part in parts:
    assert part in message, message


def test_a_job_is_known_by_its_name_from_anywhere(tmp_path, monkeypatch):
  expected = parsed("--config.epochs=3").to_json()
  assert parsed("--config.epochs=3", config="wikiqa_triplet:sample").to_json() == expected
  monkeypatch.chdir(tmp_path)
  for name in ("wikiqa_triplet", TRIPLET, str(ROOT / TRIPLET)):
    assert parsed("--config.epochs=3", config=f"{name}:sample").to_json() == expected
  (tmp_path / "configs").mkdir()
  (tmp_path / TRIPLET).write_text("def get_config(): raise KeyError('a file comes first')")
  assert "a file comes first" in refused(f"--config={TRIPLET}")


@pytest.mark.parametrize(
  "name, content, parts",
  [
    ("x.json", '{"model": ', ["not valid JSON", "line 1"]),
    ("x.json", '{"model": {"a.b": 1}, "loss": {}}', ["model = ", "does not fit", "a.b"]),
    ("x.json", '{"model": {}, "loss": {}, "optimizer": {"rat": 1}}', ["rat", "does not fit"]),
    ("x.json", '{"model": {}, "loss": {}, "epochs": "many"}', ["epochs", "many"]),
    ("x.py", "def get_config():\n  return 1 / 0\n", [":2: ZeroDivisionError"]),
    ("x.py", "def get_config(:\n", [":1: SyntaxError"]),
    ("x.py", "x = 1\n", ["no attribute 'get_config'"]),
    ("x.py", "def get_config():\n  return {}\n", ["a dict, no ConfigDict"]),
  ],
)
def test_a_config_that_is_wrong_itself(tmp_path, name, content, parts):
  path = tmp_path / name
  path.write_text(content)
  message = refused(f"--config=configs/rerun.py:{path}" if name == "x.json" else f"--config={path}")
  for part in [str(path), *parts]:
    assert part in message, message


# key=value on the command line -> what the message says; found before anything is read or written
OUT_OF_RANGE = {
  "select=mapp": "map, mrr",
  "seeds=0,0": "different",
  "seeds=a,": "whole",
  "evaluation.splits=tset": "train, dev, test",
  "data.train_fraction=1.5": "up to 1",
  "data.max_length=3": "4 or more",
  "data.mined=(1,)": "paths as texts",
  "data.prompts=a,": "such as ('query: ', '')",
  "batch.row_lengths=128,64": "shortest first",
  "optimizer.rate=nan": "finite",
  "optimizer.lr_multipliers=(('(', 0.0),)": "regular expression",
  "optimizer.lr_multipliers=('head', 0.0)": "(regular expression, factor) pairs",
  "model.name=zebra": "biencoder",
  "loss.name=none": "nothing is trained; set epochs to 0",
}


@pytest.mark.parametrize("setting", OUT_OF_RANGE)
def test_a_value_out_of_range_is_named(setting, tmp_path):
  with pytest.raises(InputError) as caught:
    modes.run(parsed(f"--config.{setting}"), str(tmp_path / "x"))
  assert OUT_OF_RANGE[setting] in str(caught.value), caught.value
  assert setting.partition("=")[0] in str(caught.value)
  assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
  "settings, folder, message",
  [
    ({}, "", "output is missing"),
    ({}, "file", "file cannot be"),
    ({"mode": "predict"}, "x", "holds no run"),
    ({"data__max_length": 1000}, "x", "128 positions"),
    ({"sharding__tensor": 7}, "x", "devices"),
    ({"encoder__pretrained": "./zebra"}, "x", "no such folder"),
    (
      {"encoder__pretrained": "package:zebra/model", "data__train": "absent.csv"},
      "x",
      "pip install",
    ),
    ({"optimizer__lr_multipliers": (("zebra/", 0.0),)}, "x", "encoder/embeddings"),
  ],
)
def test_what_cannot_be_run_is_one_message(settings, folder, message, tmp_path):
  (tmp_path / "file").write_text("")
  with pytest.raises(InputError, match=message):
    modes.run(tiny.config(**settings), str(tmp_path / folder) if folder else "")


def test_packages_are_looked_for_before_data_are_read(tmp_path, monkeypatch):
  monkeypatch.setitem(sys.modules, "tensorboardX", None)
  config = tiny.config(data__name="files", data__train="absent.csv", log__tensorboard=True)
  with pytest.raises(InputError, match=r"pip install 'as2jax\[train\]', or do without"):
    modes.run(config, str(tmp_path))


def test_without_an_encoder_and_network_it_says_what_to_do(tmp_path):
  """The download goes to a closed port, as a machine without a network would fail; before data are read."""
  closed = {f"{kind}_proxy": "http://127.0.0.1:9" for kind in ("http", "https", "all")}
  kept = {k: v for k, v in os.environ.items() if not k.startswith(("AS2JAX", "XLA", "JAX", "HF_"))}
  own = {"AS2JAX_DATA": "", "AS2JAX_CACHE": "cache", "HF_HOME": "hub"}
  own = {name: str(tmp_path / folder) for name, folder in own.items()}
  one_device = {"JAX_PLATFORMS": "cpu", "AS2JAX_ALLOCATOR": "off"}
  data = ["--config.data.name=files", "--config.data.train=absent.csv"]
  command = [f"--config={TRIPLET}", *data, "--workdir", str(tmp_path / "x")]
  started = time.monotonic()
  done = subprocess.run(
    [sys.executable, "-m", "as2jax.main", *command],
    cwd=ROOT,
    env=kept | one_device | own | closed | {"no_proxy": ""},
    capture_output=True,
    text=True,
    timeout=120,
  )
  assert done.returncode == 2 and done.stdout == ""
  device, reading, error = done.stderr.splitlines()
  about = f"{tmp_path / 'x'}: triplet, trained by triplet; CPU ("
  assert device.startswith(about) and reading == "reading", done.stderr
  for part in ("as2jax: ", "bert-base-uncased", str(tmp_path / "hub"), "download", ":sample"):
    assert part in error, done.stderr
  assert time.monotonic() - started < 60
