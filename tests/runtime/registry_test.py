"""Names of classes: those of the tables, and the user's own as `module:Class`."""

import sys

import pytest

from as2jax.models.biencoder import BiEncoder
from as2jax.runtime import registry
from as2jax.runtime.errors import InputError

SOURCE = """
import dataclasses
from as2jax.models.losses import Loss
from as2jax.models.system import System

class Mine(System):
  width: int

@dataclasses.dataclass(frozen=True)
class MyLoss(Loss):
  weight: float

number = 3
"""


MODULES = ("own_classes", "own_folder.inner", "own_broken", "no_such_module", "own_classes.py")
CLASSES = ("Mine", "MyLoss", "number")


@pytest.fixture(autouse=True)
def modules(tmp_path, monkeypatch):
  (tmp_path / "own_classes.py").write_text(SOURCE)
  (tmp_path / "own_broken.py").write_text("import a_module_that_nobody_has\n")
  (tmp_path / "own_folder").mkdir()
  (tmp_path / "own_folder" / "inner.py").write_text(SOURCE)
  monkeypatch.syspath_prepend(tmp_path)
  monkeypatch.setattr(
    registry, "_allowed", {f"{module}:{name}" for module in MODULES for name in CLASSES}
  )


@pytest.mark.parametrize("module", ["own_classes", "own_folder.inner"])
def test_a_class_of_the_users_is_announced(module, tmp_path, caplog):
  sys.modules.pop(module, None)
  system = registry.build(registry.MODELS, {"name": f"{module}:Mine", "width": 3}, "model")
  assert type(system).__name__ == "Mine" and system.width == 3
  file = tmp_path / f"{module.replace('.', '/')}.py"
  (line,) = caplog.messages
  assert line == f"model.name = '{module}:Mine': running code of the module {module} ({file})"
  loss = registry.build(registry.LOSSES, {"name": f"{module}:MyLoss", "weight": 0.5}, "loss")
  assert loss.weight == 0.5
  with pytest.raises(InputError, match="model.zebra is not a field of Mine; its .*width"):
    registry.build(registry.MODELS, {"name": f"{module}:Mine", "zebra": 3}, "model")
  with pytest.raises(InputError, match=r"MyLoss wants values for \['weight'"):
    registry.build(registry.LOSSES, {"name": f"{module}:MyLoss"}, "loss")


def test_a_name_of_the_table():
  assert registry.find(registry.MODELS, "biencoder", "model.name") is BiEncoder
  for table in (registry.MODELS, registry.LOSSES, registry.ENCODERS):
    for name in table:
      assert issubclass(registry.find(table, name, "x.name"), registry.resolve(table.base))


@pytest.mark.parametrize(
  "name, message",
  [
    ("zebra", "model.name = 'zebra' is not known; use one of .*triplet.*as module:Class"),
    ("no_such_module:Mine", "there is no module 'no_such_module'; .*PYTHONPATH"),
    ("own_classes:MyLoss", "is no System: derive the class from as2jax.models.system.System"),
    ("own_classes:number", "is no System"),
    (
      "own_classes:Another",
      "is code of the module 'own_classes', which was not run: add allow_code=True",
    ),
    (".own_classes:Mine", "write it as module:Class"),
    ("own_classes.py:Mine", "there is no module 'own_classes.py'"),
  ],
)
def test_a_name_that_is_wrong(name, message):
  with pytest.raises(InputError, match=message):
    registry.find(registry.MODELS, name, "model.name")


def test_an_error_inside_of_the_users_module_is_shown_as_it_is():
  with pytest.raises(ModuleNotFoundError, match="a_module_that_nobody_has"):
    registry.find(registry.MODELS, "own_broken:Mine", "model.name")
