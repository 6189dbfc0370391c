"""The card of an exported model states what the run's results and config do."""

import re

from as2jax.evaluation import results
from as2jax.inference import export


def test_the_card_states_what_results_json_does(trained, tmp_path):
  path, config = trained("bert", "triplet")
  content = results.read(path)
  card = (export.export(path, tmp_path / "out") / "README.md").read_text()
  for name, entry in content["seeds"][0]["metrics"].items():
    assert re.search(
      rf"\| {re.escape(name)} \| {entry['value']:.4f} \| {entry['half_width']:.4f} "
      rf"\| {entry['questions']} \|",
      card,
    ), name
  for split in content["data"]["splits"].values():
    assert split["fingerprint"] in card
  for part in (
    content["weights"]["sha256"],
    config.encoder.pretrained,
    f"pretraining of {config.encoder.pretrained}: unknown",
    '`model.pooling`: "mean"',
    "`loss.margin`: 5.0",
    "seed 0",
    "SentenceTransformer(",
  ):
    assert part in card, part
  counts, outcome = content["data"]["splits"]["train"], content["seeds"][0]
  trained_on = f"({counts['questions']} questions, {counts['pairs']} candidates, {counts['positives']} of them right)"
  for part in (
    f"Trained for {outcome['steps']} steps, {config.epochs} epochs at most, on the split train",
    f"{trained_on}, by the loss `triplet` and adam with a rate of 0.003. ",
    f"best checkpoint, of epoch {outcome['best_epoch']} (step {outcome['best_step']}), by map, dev",
  ):
    assert part in card, part
  assert "base_model" not in card  # a folder of this disk is no name on the hub
  code = re.search(r"```python\n(.*?)```", card, re.S)[1]
  assert code.count("\n") == 3


def test_a_siamese_head_stays_behind_and_the_card_says_so(trained, tmp_path, caplog):
  path, _ = trained("roberta", "siamese", model__score="head", epochs=0)
  outcome = results.read(path)["seeds"][0]
  card = (export.export(path, tmp_path / "out") / "README.md").read_text()
  name = "map[sample-clean/dev]"
  value = outcome["other_scores"]["euclidean"][name]["value"]
  assert f"| {name} | {value:.4f} |" in card and "ranked by `euclidean`" in card
  assert "the run's own figures are not those above" in card and "\nNot trained: these" in card
  reason = "he run ranks by `head`, whose layers have no place in the folder"
  assert "Ranks otherwise than the run" in card and reason in card and reason in caplog.text


def test_text_rules_are_said_not_to_be_in_the_folder(trained, tmp_path, caplog):
  path, _ = trained("bert", "crossencoder", data__rules=("lowercase", "alphanumeric"), epochs=0)
  card = (export.export(path, tmp_path / "out") / "README.md").read_text()
  reason = "data.rules = ('lowercase', 'alphanumeric')"
  assert reason in card.split("## Ranks otherwise than the run")[1] and reason in caplog.text
  caplog.clear()
  path, _ = trained("bert", "crossencoder", epochs=1)
  card = (export.export(path, tmp_path / "plain") / "README.md").read_text()
  assert "otherwise" not in card and "otherwise" not in caplog.text
