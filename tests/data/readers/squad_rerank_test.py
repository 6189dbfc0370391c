import tiny
from squad_test import squad, written

from as2jax.commands import app
from as2jax.data.readers import asnq
from as2jax.data.readers.squad import asnq_rows, read_rerank


def test_rows_in_asnqs_classes(tmp_path):
  rows = list(asnq_rows(written(tmp_path, squad())))
  floats = [(row.text, row.label) for row in rows if row.question == "What floats?"]
  assert floats == [
    ("Ice is “frozen” water.", 3),
    ("It floats.", 4),
    ("Why?", 3),
    ("Ice is light.", 4),
    ("Snow is ice.", 1),
    ("It is light.", 2),
  ]
  assert sum(row.question == "Why?" for row in rows) == 6  # the second question of that text: none
  assert rows[1].previous == "Ice is “frozen” water." and rows[1].title == "The ice"
  asnq.write_asnq(tmp_path / "made.tsv", rows)
  questions = asnq.read_asnq(tmp_path / "made.tsv")
  assert [(len(q.candidates), len(q.positives)) for q in questions] == [(6, 2), (6, 1), (1, 1)]
  assert questions[0].candidates[0].next_label == 1


def test_the_command(tmp_path, capsys):
  path, target = written(tmp_path, squad()), tmp_path / "new" / "made.tsv"
  command = ["data", "squad", str(path)]
  assert app.run([*command, str(target)]) == 0
  assert capsys.readouterr().out == f"{target}: 13 rows\n"
  assert target.read_text().splitlines()[2].startswith("What floats?\tIt floats.\t4\t")
  before = path.read_bytes()
  assert app.run([*command, str(path)]) == 2
  assert "is the file that is read: name another" in capsys.readouterr().err
  assert path.read_bytes() == before


def test_dev_articles_of_the_real_training_part():
  path = tiny.real_data("squad", "train-44-articles.json")
  questions = list(read_rerank(path, "dev"))
  assert len(questions) == 1020 and all(q.positives and q.negatives for q in questions)
  titles = {c.title for q in questions for c in q.candidates}
  train = {row.title for row in asnq_rows(path, split="train")}
  assert titles and not titles & train and len(titles | train) == 44
