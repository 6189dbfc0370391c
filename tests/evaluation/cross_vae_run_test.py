"""A whole run of a Cross-VAE on the sample, and what its evaluations write of its latents."""

import json

import pytest
import tiny

from as2jax.inference import modes
from configs import squad_cross_vae, squad_dual_gru


def config(module):
  job_config = module.get_config("sample")
  job_config.encoder.update({"pretrained": tiny.encoder_folder(), "size": 60})
  job_config.model.update(
    {
      "hidden_size": 6,
      "decoder_size": 7,
      "hops": 2,
      "attention_size": 5,
      "latent_size": 4,
      "question_length": 12,
      "answer_length": 16,
      "softmax_chunk": 64,
    }
  )
  job_config.data.update({"train_fraction": 0.6, "max_length": 16})
  job_config.batch.update({"examples": 16, "predict_rows": 64, "row_lengths": (16,), "shards": 2})
  job_config.epochs, job_config.optimizer.rate = 2, 1e-2
  job_config.log.tensorboard, job_config.compilation_cache = False, "off"
  return job_config.lock()


@pytest.mark.slow
def test_a_run_is_diagnosed_and_generates(tmp_path):
  run = tmp_path / "run"
  modes.run(config(squad_cross_vae), str(run))
  content = json.loads((run / "results.json").read_text())
  assert content["execution"]["compilations_of_step"] == 1
  words = content["weights"]["words"]
  assert words["output_size"] == 64 and words["size"] == 64 + words["read_types"] > 64
  rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
  logged = [row for row in rows if "loss" in row]
  wanted = {
    "kl_question",
    "kl_answer",
    "active_units_question",
    "kl_active_dimensions_answer",
    "perplexity_question",
    "perplexity_answer",
    "beta",
    "matching_positive",
  }
  assert logged and all(wanted <= set(row) for row in logged)
  assert logged[-1]["beta"] == pytest.approx(1, abs=0.35) and logged[0]["beta"] < 0.5
  assert logged[-1]["perplexity_answer"] < logged[0]["perplexity_answer"]
  _check_diagnostics(run, content, [row for row in rows if "epoch" in row])


def _check_diagnostics(run, content, rows):
  """Each evaluation has its numbers, its dimensions and its examples; the best one is kept."""
  assert [row["epoch"] for row in rows] == [0, 1, 2]
  for row in rows:
    folder = run / "diagnostics" / f"epoch-{row['epoch']:03d}"
    head, *lines = (folder / "latents.tsv").read_text().splitlines()
    table = dict(
      zip(head.split("\t"), zip(*([float(x) for x in line.split("\t")] for line in lines)))
    )
    assert len(lines) == 4  # dimensions
    for side in ("question", "answer"):
      assert row[f"kl_{side}[dev]"] == pytest.approx(sum(table[f"kl_{side}"]), rel=1e-3)
      assert row[f"active_units_{side}[dev]"] == sum(
        x > 0.01 for x in table[f"variance_of_mean_{side}"]
      )
    assert (folder / "generated.txt").read_text().count("answer generated from the question") == 5
  first, *_, last = rows
  assert last["perplexity_answer[dev]"] < first["perplexity_answer[dev]"] < 100
  diagnosed, best = content["seeds"][0]["diagnostics"], rows[content["seeds"][0]["best_epoch"]]
  names = [name for name in diagnosed if name != "generated"]
  assert "words_not_generated_question[dev]" in names and len(diagnosed["generated"]) == 5
  for name in names:
    assert diagnosed[name] == pytest.approx(best[name], rel=1e-5)


@pytest.mark.slow
def test_a_system_without_decoders_generates_no_text(tmp_path):
  run = tmp_path / "run"
  job_config = config(squad_dual_gru)
  with job_config.unlocked():
    job_config.epochs = 0
  modes.run(job_config, str(run))
  assert [path.name for path in (run / "diagnostics" / "epoch-000").iterdir()] == ["latents.tsv"]
