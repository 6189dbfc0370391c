"""Retrieval datasets as runs see them: questions with candidates, pools, articles kept apart."""

import json

import pytest
import tiny
from holdout_test import section
from squad_test import paragraph

from as2jax.data import load, mined
from as2jax.data.dataset import Dataset
from as2jax.data.dataset import load as load_named
from as2jax.data.readers.squad import part, read_parts
from as2jax.data.record import Candidate, Passage, Pool, Query, Question
from as2jax.data.retrieval import pool_of, retrieval, ruled, with_candidates, with_paragraph
from as2jax.data.user_files import WITH_NEGATIVES
from as2jax.runtime.errors import InputError

PASSAGES = (
  Passage("p0", "One.", "T", "", "Two.", "One. Two. Three."),
  Passage("p1", "Two.", "T", "One.", "Three.", "One. Two. Three."),
  Passage("p2", "Three.", "T", "Two.", "", "One. Two. Three."),
  Passage("p3", "Four.", "U", "", "", "Four."),
)


def test_negatives_are_the_rest_of_the_paragraph_or_what_was_retrieved():
  asked = Query("a", "A ?", ("p1", "p2"), (2, 1), "T"), Query("b", "B ?", ("p3",), (1,), "U")
  pool = Pool(PASSAGES, asked)
  first, second = with_paragraph(pool)
  assert (first.group, second.group) == ("T", "U")
  assert [(c.id, c.label) for c in first.candidates] == [("p0", 0), ("p1", 1)]
  assert first.candidates[1].previous == "One." and first.candidates[1].title == "T"
  assert [(c.id, c.label) for c in second.candidates] == [("p3", 1)]
  retrieved = with_candidates(Pool(PASSAGES, asked[:1]), [[3, 2, 1]])[0].candidates
  assert [(c.id, c.label) for c in retrieved] == [("p3", 0), ("p2", 1), ("p1", 1)]


def test_held_out_pairs_are_asked_of_all_answers_of_their_file(tmp_path):
  """Their own and those that are trained on, whose questions keep their wrong answers."""
  rows = [f"q{i},a{i % 7},n{i}" for i in range(10)]
  (tmp_path / "faq.csv").write_text("\n".join(["question,answer,negative", *rows, ""]))
  how = {"name": "files", "train": str(tmp_path / "faq.csv"), "negatives": "paragraph"}
  data = load.load(section(**how, holdout=0.2), "retrieve")
  pool, train = data.pools["heldout"], data.splits["train"]
  asked = {query.text for query in pool.queries}
  assert len(asked) == 2 and len(train) == 8 and not asked & {q.text for q in train}
  assert {p.text for p in pool.passages} == {f"a{i}" for i in range(7)} | {
    f"n{i}" for i in range(10)
  }
  assert len({p.id for p in pool.passages}) == len(pool.passages) == 17
  assert all([c.label for c in q.candidates] == [1, 0] for q in train)
  assert data.forms == {"train": WITH_NEGATIVES}


def test_text_rules_reach_the_pool():
  pool = Pool(PASSAGES, (Query("a", "Which ONE ?", ("p1",), (2,)),))
  actual = ruled(pool, ("lowercase",))
  assert [p.text for p in actual.passages] == ["one.", "two.", "three.", "four."]
  assert actual.passages[1].previous == "one." and actual.queries[0].text == "which one ?"
  assert actual.passages[1].id == "p1" and ruled(pool, ()) is pool


def test_questions_that_text_rules_make_equal_are_one_query():
  queries = (
    Query("a", "Which ONE ?", ("p0", "p1"), (2, 1)),
    Query("b", "why ?", ("p2",), (1,)),
    Query("c", "which one ?", ("p1",), (1,)),
    Query("d", "Which one ?", ("p2", "p1"), (2, 1)),
  )
  pools = {"train": Pool(PASSAGES, queries), "test": Pool(PASSAGES, queries)}
  data = Dataset("made", pools, "pool", "", {})
  actual = retrieval(data, negatives="none", text_rules=("lowercase",)).pools
  one = Query("a", "which one ?", ("p1", "p0", "p2"), (3, 2, 2))  # by their votes
  assert actual["test"].queries == (one, queries[1])
  assert [query.id for query in actual["train"].queries] == ["a", "b", "c", "d"]
  plain = retrieval(data, negatives="none", text_rules=()).pools
  assert plain["test"].queries == queries


def test_a_reranking_data_set_as_a_pool():
  asked = (
    Question("a", "A ?", (Candidate("1", "One.", 1), Candidate("2", "Two.", 0))),
    Question("b", "B ?", (Candidate("1", "Two.", 1), Candidate("2", "Three.", 1))),
    Question("c", "C ?", (Candidate("1", "One.", 0),)),
    Question("d", "A ?", (Candidate("1", "Two.", 1),)),
  )
  pool = pool_of(asked, merge=False)
  assert [(p.id, p.text) for p in pool.passages] == [
    ("a:1", "One."),
    ("a:2", "Two."),
    ("b:2", "Three."),
  ]
  assert [(q.id, q.answers) for q in pool.queries] == [
    ("a", ("a:1",)),
    ("b", ("a:2", "b:2")),
    ("d", ("a:2",)),
  ]
  merged = pool_of(asked, merge=True)
  assert [(q.id, q.answers) for q in merged.queries] == [
    ("a", ("a:1", "a:2")),
    ("b", ("a:2", "b:2")),
  ]


def test_passages_of_a_pool_have_ids_of_their_own():
  first = Question("1", "A ?", (Candidate("2:3", "One.", 1),))
  second = Question("1:2", "A ?", (Candidate("3", "Two.", 1),))
  with pytest.raises(InputError, match="one of question '1:2', would be the passage '1:2:3'"):
    pool_of((first, second), merge=False)


def test_mined_negatives_stay_beside_the_positives_none_twice_and_in_no_pool(tmp_path):
  how = {"rules": ("lowercase",), "holdout": 0.2}
  questions = load.load(section(holdout=0.2)).splits["train"]
  asked = next(q for q in questions if q.positives)
  silent = next(q for q in questions if not q.positives)
  texts = (asked.candidates[asked.positives[0]].text.upper(), "Mined Text", "MINED text")
  rows = [mined.line(q, Candidate("", text, 0)) for q in (asked, silent) for text in texts]
  (tmp_path / mined.FILE).write_text("".join(rows))
  (tmp_path / mined.CARD).write_text("{}")
  before = load.load(section(**how), "retrieve")
  after = load.load(section(**how, mined=(str(tmp_path),)), "retrieve")
  plain, more = before.splits["train"], after.splits["train"]
  added = {q.id: q.candidates[1:] for q in more}
  assert [(c.text, c.label) for c in added.pop(asked.id)] == [("mined text", 0)]
  assert not any(added.values())
  assert [q.candidates[:1] for q in more] == [q.candidates for q in plain]
  assert all(after.pools[split] == before.pools[split] for split in before.pools)


def article(title):
  asked = title[8:], f"{title} ?", "Ice"
  return {"title": title, "paragraphs": [paragraph("Ice melts. It is wet.", asked)]}


def test_articles_are_parted(tmp_path):
  titles = [f"article {i}" for i in range(600)]
  parts = {split: [t for t in titles if part(t) == split] for split in ("train", "dev", "test")}
  assert [len(x) for x in parts.values()] == pytest.approx([200, 100, 300], abs=40)
  chosen = [parts[split][0] for split in parts]
  for name in ("dev-v1.1.json", "train-44-articles.json"):
    (tmp_path / name).write_text(json.dumps({"data": list(map(article, chosen))}))
  read = lambda name, table, split: list(read_parts(tmp_path / name, table, split))
  for n, split in enumerate(parts):
    queries = read("dev-v1.1.json", "queries", split)
    assert [(q.text, q.answers) for q in queries] == [(f"{chosen[n]} ?", (f"dev-{n}-0-0",))]
    assert [p.id for p in read("dev-v1.1.json", "pool", split)] == [f"dev-{n}-0-0", f"dev-{n}-0-1"]
  whole = read("train-44-articles.json", "queries", "train")
  assert [q.answers[0] for q in whole] == [f"train-{n}-0-0" for n in range(3)]


@pytest.mark.slow
def test_the_parts_of_squad():
  tiny.real_data("squad", "train-44-articles.json")
  actual = load_named("squad_parts", pool=True)
  counts = {s: its["question_filters"]["pool"] for s, its in actual.statistics.items()}
  assert {split: (n["entries"], n["questions"]) for split, n in counts.items()} == {
    "train": (13602, 14625),
    "dev": (942, 785),
    "test": (6119, 7037),
  }
  titles = {split: {p.title for p in pool.passages} for split, pool in actual.splits.items()}
  assert not titles["train"] & titles["test"] and not titles["dev"] & titles["test"]
  assert {split: len(x) for split, x in titles.items()} == {"train": 58, "dev": 5, "test": 29}
  assert actual.contents["test"] == "official"  # dev-v1.1, by its SHA-256
  made = retrieval(actual, negatives="none", text_rules=())
  assert made.contents == actual.contents


def test_the_two_kinds_are_not_mixed_up():
  with pytest.raises(InputError, match="'squad' is a retrieval dataset"):
    load_named("squad")
  with pytest.raises(InputError, match="'sample' has no pool .* use one of .*squad"):
    load_named("sample", pool=True)
