"""A whole run of a Cross-VAE on the sample, and the texts that its latents generate."""

import json

import pytest

import tiny
from as2jax import generate, modes
from configs import squad_cross_vae, squad_dual_gru


def config(module):
  made = module.get_config("sample")
  made.encoder.update({"pretrained": tiny.encoder_folder(), "size": 60})
  made.model.update({"hidden_size": 6, "decoder_size": 7, "hops": 2, "attention_size": 5,
                     "latent_size": 4, "question_length": 12, "answer_length": 16,
                     "softmax_chunk": 64})
  made.data.update({"train_fraction": 0.6, "max_length": 16})
  made.batch.update({"examples": 16, "predict_rows": 64, "row_lengths": (16,), "shards": 2})
  made.epochs, made.optimizer.rate = 2, 1e-2
  made.log.tensorboard, made.compilation_cache = False, "off"
  return made.lock()


def test_a_run_is_watched_and_speaks(tmp_path, capsys):
  run = tmp_path / "run"
  modes.run(config(squad_cross_vae), str(run))
  found = json.loads((run / "results.json").read_text())
  assert found["execution"]["compilations_of_step"] == 1
  assert found["weights"]["words"]["size"] == 64
  rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
  logged = [row for row in rows if "loss" in row]
  wanted = {"kl_question", "kl_answer", "active_units_question", "kl_active_dimensions_answer",
            "perplexity_question", "perplexity_answer", "beta", "matching_positive"}
  assert logged and all(wanted <= set(row) for row in logged)
  assert logged[-1]["beta"] == pytest.approx(1, abs=0.35) and logged[0]["beta"] < 0.5
  assert logged[-1]["perplexity_answer"] < logged[0]["perplexity_answer"]
  assert generate.main([f"--run={run}", "--count=3", "--length=7"]) == 0
  text = (run / "generated" / "dev.txt").read_text()
  assert text == capsys.readouterr().out and text.count("question   ") == 3
  assert text.count("answer generated from the question: ") == 3
  assert text.count("question generated from the answer: ") == 3
  made = generate.generate(run, split="test", count=2, length=5, seed=0)
  assert all(len(one.from_question[1].split()) <= 5 for one in made)
  assert generate.main([f"--run={run}", "--seed=8"]) == 2
  assert "has the seeds (0,)" in capsys.readouterr().err


def test_what_cannot_speak_says_so(tmp_path, capsys):
  run = tmp_path / "run"
  made = config(squad_dual_gru)
  with made.unlocked():
    made.epochs = 0
  modes.run(made, str(run))
  assert generate.main([f"--run={run}"]) == 2
  assert "'none' has no decoder" in capsys.readouterr().err
