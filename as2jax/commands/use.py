"""What is done with finished runs: rank, compare, explain, export, index, search, serve."""

import contextlib
import dataclasses
import os
import pathlib
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import typer
from typer import Argument, Option

from as2jax.commands import output, process
from as2jax.commands.output import examples, option
from as2jax.commands.train import AllowCode, Columns, Drop, Label
from as2jax.runtime import devices, preemption
from as2jax.runtime.errors import InputError

Run = Annotated[str, Argument(metavar="RUN", help="a finished run's folder")]
Seed = Annotated[
  int | None, Option(metavar="N", help="which of the run's seeds; default: the best")
]
Out = option(".jsonl, .tsv, .csv, .parquet", "-o", "--output", metavar="FILE")
Filter = Annotated[
  str | None, Option("--filter", help="the questions to count; default: the dataset's")
]
Backend = Annotated[
  Literal["jax", "openvino", "openvino-int8"],
  Option(help="what computes the encoder; OpenVINO is faster on a processor alone"),
]
Deterministic = option("a system without randomness", metavar="SYSTEM", kind=list[str])
app = typer.Typer()


@app.command(
  epilog=examples(
    "as2jax rank runs/x questions.jsonl -o ranked.jsonl --top-k=5",
    "as2jax rank runs/x faq.csv -o ranked.csv --columns question=query,candidate=reply",
    'echo \'{"question": "who sat?", "candidate": "The cat sat."}\' | as2jax rank runs/x',
  )
)
def rank(
  run: Run,
  file: Annotated[
    str, Argument(metavar="[FILE]", help="questions with candidates; else standard input")
  ] = "-",
  target: Out = "",
  top: Annotated[
    int | None, Option("--top-k", "--top", min=1, help="candidates a question; all if absent")
  ] = None,
  seed: Seed = None,
  ranking: option("of joint models: a run file over FILE", metavar="FILE") = "",
  columns: Columns = "",
  drop: Drop = False,
  label: Label = None,
  allow_code: AllowCode = False,
  backend: Backend = "jax",
  excel: output.Excel = False,
  form: output.Form = "text",
) -> None:
  """Ranks the candidates of each question. Other columns of the file are carried through."""
  from as2jax.data import tables

  if excel:
    output.check_excel(target)
  if target:
    tables.check_target(target, source=file)
  from as2jax.inference.open import rank_file

  with tempfile.TemporaryDirectory() as folder:
    if file == "-":
      content = b"" if sys.stdin.isatty() else sys.stdin.buffer.read()
      if not content.strip():
        raise InputError(
          "standard input is empty: name a file of questions with candidates, as2jax rank RUN FILE"
        )
      file = os.path.join(folder, "standard input")
      pathlib.Path(file).write_bytes(content)
    separator = tables.separator(file) if excel else ""
    how = {
      "ranking": ranking,
      "columns": columns,
      "drop": drop,
      "allow_code": allow_code,
      "label": label,
      "backend": backend,
    }
    rows = rank_file(run, file, seed=seed, top_k=top, **how)
  if target:
    tables.write(target, rows, excel=separator)
  output.emit(form, rows, lambda: _ranked_text(rows, target))


def _ranked_text(rows: Sequence[Mapping[str, Any]], target: str) -> str:
  """Return the rows for a terminal, each question with its candidates; of a `target`, that it is written."""
  if target:
    return f"written: {target} ({len({row['question_id'] for row in rows})} questions)"
  lines = []
  for row in rows:
    if row["rank"] == 1:
      lines += ["", " ".join(row["question"].split())]
    lines.append(_hit(row["rank"], row["score"], row["candidate"]))
  return "\n".join(lines[1:])


def _hit(rank: int, score: float, text: str) -> str:
  return f"{rank:4d}  {score:8.4f}  {' '.join(text.split())}"


@app.command(
  epilog=examples(
    "as2jax compare runs/bm25 runs/x runs/y --metrics=map,mrr,p@1",
    "as2jax compare BM25=runs/bm25 Triplet=runs/x --format=latex > table.tex",
    "as2jax compare bm25.run 'ours=ours-*.run' --qrels=qrels.txt --metrics=nDCG@10,R@100",
  )
)
def compare(
  systems: Annotated[
    list[str],
    Argument(
      metavar="SYSTEM...",
      help="folders of finished runs, tables of per-question scores, or TREC run files (those of one "
      "system's seeds joined by commas or as a pattern); the first is the base; NAME=SYSTEM names its row",
    ),
  ],
  metrics: Annotated[
    str,
    Option(help="joined by commas; default: map,mrr, of retrieval mrr,r@1, by --qrels nDCG@10,AP"),
  ] = "",
  qrels: option(
    "what is right, for run files alone: a TREC or BEIR file, a BEIR folder, or ir_datasets' irds:ID",
    metavar="FILE",
  ) = "",
  split: Annotated[str, Option(help="of runs' folders")] = "test",
  question_filter: Filter = None,
  deterministic: Deterministic = [],
  samples: Annotated[int, Option(min=1, help="of the randomization test")] = 100_000,
  seed: Annotated[int, Option(min=0, help="of the randomization test")] = 0,
  form: output.TableForm = "text",
  excel: output.Excel = False,
) -> None:
  """Compares systems with the first. Question by question: differences, half-widths, tests."""
  from as2jax.evaluation import compare as comparison

  check_filter(question_filter)
  if excel:
    if form != "csv":
      raise InputError(f"--excel is for --format=csv, not {form}")
    sys.stdout.reconfigure(encoding="utf-8")  # as the byte order mark says
  print(
    comparison.run(
      systems,
      metrics=metrics,
      split=split,
      question_filter=question_filter,
      samples=samples,
      seed=seed,
      form=form,
      deterministic=deterministic,
      qrels=qrels,
      excel=excel,
    )
  )


@app.command(
  epilog=examples(
    'as2jax explain runs/x --text-question="who sat?" --text-candidate="The cat sat." -o cat.png',
    "as2jax explain runs/cassie --question-id=Q1 --split=dev -o alignment.png",
  )
)
def explain(
  run: Run,
  question: Annotated[str, Option("--text-question", help="a text")] = "",
  candidate: Annotated[
    list[str], Option("--text-candidate", help="a text; for a joint run several times, best first")
  ] = [],
  question_id: Annotated[str, Option(help="one of the run's data, for a text")] = "",
  split: Annotated[str, Option(help="of the ids")] = "test",
  previous: Annotated[str, Option(help="the sentence before the candidate")] = "",
  following: Annotated[str, Option("--next", help="the sentence after it")] = "",
  target: option(
    "the picture: .png, .svg or .pdf", "-o", "--output", metavar="FILE"
  ) = "explained.png",
  seed: Seed = None,
  allow_code: AllowCode = False,
  excel: output.Excel = False,
  form: output.Form = "text",
) -> None:
  """Draws what a model sees. Words of a question against those of a candidate, as a picture and TSV.

  CASSIE's runs show the transport plans that they compute, M²S-Net's their grids of similarities,
  others the cosine of their vectors. The picture is a PNG, SVG or PDF, in which text is text.
  """
  from as2jax.inference import explain as explaining

  panels = explaining.make(
    run,
    target,
    question=question,
    candidates=candidate,
    previous=previous,
    following=following,
    question_id=question_id,
    split=split,
    seed=seed,
    allow_code=allow_code,
    excel=excel,
  )
  rows = []
  for panel in panels:
    rows.append({"mode": panel.mode, "score": panel.score, "score_name": panel.score_name})
  output.emit(form, rows, lambda: f"written: {target}")


@app.command(epilog=examples("as2jax export runs/x exported --seed=0"))
def export(
  run: Run,
  target: Annotated[str, Argument(metavar="FOLDER", help="must not exist, or be empty")],
  seed: Annotated[int | None, Option(metavar="N", help="needed where the run has several")] = None,
  allow_code: AllowCode = False,
) -> None:
  """Writes a folder for other libraries. For sentence-transformers or transformers, with a card."""
  from as2jax.inference import export as exporting

  print(f"written: {exporting.export(run, target, seed, allow_code=allow_code)}")


def check_filter(name: str | None) -> None:
  """Raise InputError where `--filter` names no question filter."""
  from as2jax.evaluation.run_scores import QUESTION_FILTERS

  if name is not None and name not in QUESTION_FILTERS:
    raise InputError(f"--filter={name}: use one of {', '.join(QUESTION_FILTERS)}")


@app.command(
  epilog=examples(
    "as2jax index runs/x answers.jsonl -o faq.index",
    "as2jax index runs/x faq.csv -o faq.index --columns text=answer --drop",
  )
)
def index(
  run: Run,
  file: Annotated[
    str, Argument(metavar="FILE", help="documents: .jsonl, .csv, .tsv, .parquet, else one a line")
  ],
  target: option("of the index; the same goes on", "-o", "--output", metavar="FOLDER"),
  seed: Seed = None,
  columns: option("such as text=answer,id=number", metavar="FIELD=COLUMN,…") = "",
  drop: option("leave out rows without text and repeated texts", "--drop", kind=bool) = False,
  allow_code: AllowCode = False,
  backend: Backend = "jax",
) -> None:
  """Encodes documents for search. Once; the same command goes on after a stop."""
  from as2jax.commands import documents

  ids, texts = documents.read(file, columns, drop=drop)
  devices.use_cores()
  from as2jax.inference.open import load

  ranker = load(run, seed=seed, allow_code=allow_code, backend=backend)
  if not ranker.has_vectors and not hasattr(ranker, "over_pool"):
    raise InputError(
      f"{run} cannot index documents: {ranker.name} has no vectors of texts; give a bi-encoder or bm25"
    )
  document_index = ranker.index(texts, ids=ids, path=target)
  print(f"written: {target} ({len(document_index)} documents)")


@app.command(
  epilog=examples('as2jax search faq.index "how do I reset my password"', "as2jax search faq.index")
)
def search(
  folder: Annotated[str, Argument(metavar="INDEX", help="what as2jax index wrote")],
  question: Annotated[
    str | None, Argument(metavar="[QUESTION]", help="else a question a line of standard input")
  ] = None,
  top: Annotated[int, Option("--top-k", "--top", min=1, help="documents a question")] = 10,
  rerank: option("a run or model that ranks the best again", metavar="RUN") = "",
  label: Label = None,
  allow_code: AllowCode = False,
  form: output.Form = "text",
) -> None:
  """Searches an index. For one question, or each line of standard input."""
  if question is not None and not question.strip():
    raise InputError(f"the question is {question!r}: give a text, or none to type questions")
  if label is not None and not rerank:
    raise InputError(f"--label={label}: name the classifier that has classes, --rerank=MODEL")
  from as2jax.data.lines import decoded
  from as2jax.inference.index import Index
  from as2jax.inference.open import load

  opened_index = Index.open(folder, allow_code=allow_code)
  second = load(rerank, allow_code=allow_code, label=label) if rerank else None
  where, asked_for, number = "standard input", sys.stdin.buffer, 0
  if question is not None:  # another encoding than UTF-8 may have left its bytes as they were
    where, asked_for = "the question", [question.encode("utf-8", "surrogateescape")]
  for number, line in enumerate(asked_for, 1):
    asked = decoded(line, where, number).strip()
    if not asked:
      continue
    rows, lines = [], []
    for rank, hit in enumerate(opened_index.search(asked, top, rerank=second), 1):
      row = {"question": asked, "rank": rank, "score": hit.score, "id": hit.id, "text": hit.text}
      rows.append(row)
      lines.append(_hit(rank, hit.score, hit.text))
    output.emit(form, rows, lambda lines=lines: "\n".join(lines))
    sys.stdout.flush()
  if not number:
    raise InputError("standard input is empty: give a question, as2jax search INDEX QUESTION")


@app.command(
  epilog=examples(
    'as2jax answer runs/x "how are glacier caves formed" page.md',
    'as2jax answer runs/x "how are glacier caves formed" page.md --prune --threshold=precision=0.9',
    'curl -s URL | html2text | as2jax answer runs/x "how are glacier caves formed" -',
  )
)
def answer(
  run: Run,
  question: Annotated[str, Argument(help="a text")],
  files: Annotated[
    list[str], Argument(metavar="FILE...", help="documents, UTF-8; - is standard input")
  ],
  prune: Annotated[bool, Option("--prune", help="print what is kept alone")] = False,
  top: Annotated[int | None, Option(min=1, help="at most so many sentences")] = None,
  threshold: Annotated[
    str, Option(help="calibrated (best F1 on the run's dev), precision=P, none or a score")
  ] = "calibrated",
  seed: Seed = None,
  label: Label = None,
  allow_code: AllowCode = False,
  form: output.Form = "text",
) -> None:
  """Marks the sentences of documents that answer a question. Or prints them alone."""
  from as2jax.data.lines import decoded

  least: Any = {"none": None}.get(threshold, threshold)
  with contextlib.suppress(ValueError):
    least = float(threshold)
  documents = []
  for file in files:
    if file != "-" and not pathlib.Path(file).is_file():
      raise InputError(f"{file}: there is no such file: name a document, or - for standard input")
    data = sys.stdin.buffer.read() if file == "-" else pathlib.Path(file).read_bytes()
    where = "standard input" if file == "-" else file
    documents.append(decoded(data, where))
    if "\0" in documents[-1]:
      raise InputError(f"{where} holds NUL, as no text does: name a document in UTF-8")
  from as2jax.inference.open import load

  ranker = load(run, seed=seed, allow_code=allow_code, label=label)
  selection = ranker.select(question, documents, top_k=top, threshold=least)
  if form == "json":
    chosen = set(selection.sentences)
    for one in selection.sentences if prune else selection.every:
      row = {"file": files[one.document], **dataclasses.asdict(one), "kept": one in chosen}
      output.emit(form, [row], str)
    return
  for number, text in enumerate(documents):
    kept = [one for one in selection.sentences if one.document == number]
    if prune:
      for one in kept:
        print(one.text)
      continue
    output.marked(text, [(one.start, one.end) for one in kept])
  if not selection.sentences:
    print("no sentence reaches the threshold", file=sys.stderr)


@app.command(epilog=examples("as2jax serve runs/x --index=faq.index --port=8080"))
def serve(
  run: Run,
  index_folder: option("searched by /search", "--index", metavar="INDEX") = "",
  host: Annotated[str, Option(help="0.0.0.0 lets other machines in")] = "127.0.0.1",
  port: Annotated[int, Option(min=0, max=65535)] = 8080,
  allow_host: option("another name of the service", metavar="NAME", kind=list[str]) = [],
  token: Annotated[
    str | None, Option(metavar="WORD", help="that clients must send", envvar="AS2JAX_TOKEN")
  ] = None,
  queue: Annotated[float, Option(min=0, help="seconds a request may wait for its turn")] = 30,
  shutdown: Annotated[float, Option(min=0, help="seconds for requests under way at its end")] = 20,
  seed: Seed = None,
  label: Label = None,
  allow_code: AllowCode = False,
  backend: Backend = "jax",
) -> None:
  """Answers over HTTP. As Cohere, Jina, OpenAI and TEI do; /docs says what; SIGINT and SIGTERM end it."""
  from as2jax.inference import serve as service
  from as2jax.inference.index import Index
  from as2jax.inference.open import load

  how = {"allow_code": allow_code, "label": label, "backend": backend}
  ranker = load(run, seed=seed, **how)
  opened_index = None
  if index_folder:
    opened_index = Index.open(index_folder, allow_code=allow_code, beside=ranker)
  preemption.stop_listening()  # the server does
  options = {"limits": service.Limits(queue=queue, shutdown=shutdown), "allow_hosts": allow_host}
  service.serve(ranker, opened_index, host=host, port=port, token=token, **options)
  process.leave(0)  # a batch that was too slow for the deadline may still run
