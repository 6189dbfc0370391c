import xml.etree.ElementTree as ET

from file_damage import written

from as2jax.data.readers.semeval import SKIP, iterate_semeval


def read(path, repeated=True):
  return tuple(iterate_semeval(path, repeated=repeated))


FORUM = """<root>

<Question QID="Q1" QTYPE="GENERAL">
\t<QSubject>Good  &quot;bank&quot;</QSubject>
\t<QBody>Which
 one &amp; why &lt;br/&gt; caf\u00e9?</QBody>
\t<Comment CID="Q1_C1" CUSERID="U1" CGOLD="Good">
\t\t<CSubject>RE: bank</CSubject>
\t\t<CBody>
Mine.</CBody>
\t</Comment>
\t<Comment CID="Q1_C2" CUSERID="U2" CGOLD="Not English">
\t\t<CSubject>Only a subject</CSubject>
\t\t<CBody> </CBody>
\t</Comment>
</Question>
<Question QID="Q2">
\t<QSubject>Alone</QSubject>
\t<QBody></QBody>
</Question>
</root>
"""
THREAD = """\t<Thread THREAD_SEQUENCE="{0}"{1}>
\t\t<RelQuestion RELQ_ID="{0}">
\t\t\t<RelQSubject>Best bank</RelQSubject>
\t\t\t<RelQBody>Which?</RelQBody>
\t\t</RelQuestion>
\t\t<RelComment RELC_ID="{0}_C1" RELC_RELEVANCE2ORGQ="Bad" RELC_RELEVANCE2RELQ="Good">
\t\t\t<RelCText>Mine.</RelCText>
\t\t</RelComment>
\t\t<RelComment RELC_ID="{0}_C2" RELC_RELEVANCE2ORGQ="Good" RELC_RELEVANCE2RELQ="Bad">
\t\t\t<RelCText>Yours.</RelCText>
\t\t</RelComment>
\t</Thread>
"""
ASKED = """<OrgQuestion ORGQ_ID="{0}">
\t<OrgQSubject>Bank</OrgQSubject>
\t<OrgQBody>Where?</OrgQBody>
{1}</OrgQuestion>
"""
DECLARATION = """<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE xml [
<!ELEMENT xml (OrgQuestion*)>
<!ATTLIST Thread THREAD_SEQUENCE CDATA #REQUIRED>
]>
"""
AGAIN = f' {SKIP}="Q1_R4"'
THREADS = (
  DECLARATION
  + '<xml version="1.0">\n'
  + ASKED.format("Q1", THREAD.format("Q1_R4", "") + THREAD.format("Q1_R5", ""))
  + ASKED.format("Q2", THREAD.format("Q2_R1", AGAIN))
  + "</xml>\n"
)
THREADS_ALONE = f"<root>\n{THREAD.format('Q1_R4', '')}{THREAD.format('Q1_R5', '')}</root>\n"


def test_reads_the_form_of_2015(tmp_path):
  first, second = read(written(tmp_path, FORUM))
  assert (first.id, first.text) == ("Q1", 'Good "bank" Which one & why <br/> caf\u00e9?')
  assert [(c.id, c.label, c.text) for c in first.candidates] == [
    ("Q1_C1", 1, "Mine."),
    ("Q1_C2", 0, "Only a subject"),
  ]
  assert (second.text, second.candidates) == ("Alone", ())


def test_repeated_related_questions_are_left_out(tmp_path):
  path = written(tmp_path, THREADS)
  first, second = read(path, repeated=False)
  assert (first.id, first.text) == ("Q1_R4", "Best bank Which?")
  assert [(c.id, c.label) for c in first.candidates] == [("Q1_R4_C1", 1), ("Q1_R4_C2", 0)]
  assert second.id == "Q1_R5"
  assert [q.id for q in read(path)] == ["Q1_R4", "Q1_R5", "Q2_R1"]


def test_a_comment_without_text_is_skipped_and_reported(tmp_path, caplog):
  first, *_ = read(written(tmp_path, THREADS.replace("Mine.", " ", 1)))
  assert [c.id for c in first.candidates] == ["Q1_R4_C2"]
  assert "skipped 1 comments without text (the first is Q1_R4_C1)" in caplog.text


def changed(text: str, old: str, new: str) -> str:
  assert old in text
  return text.replace(old, new, 1)


ENTITIES = "".join(f'<!ENTITY e{i + 1} "{f"&e{i};" * 10}">' for i in range(9))
BROKEN = {  # name: (content, place, words)
  "no end": (changed(FORUM, "</CBody>", ""), " is no", "mismatched tag: line 11"),
  "cut between questions": (THREADS[:-7], " is no well-formed XML", f"no element found: line {THREADS.count(chr(10))}"),
  "empty": ("", " is no", "no element found"),
  "not UTF-8": (FORUM.encode("latin-1"), " is no", "(invalid token): line 6"),
  "entities that grow": (
    f'<!DOCTYPE all [<!ENTITY e0 "{"ha" * 100}">{ENTITIES}]><all>&e9;</all>', " is no", "amplification"),
  "unknown label": (changed(FORUM, '"Good"', '"Goood"'), ": question 'Q1'", "CGOLD 'Goood'; expected Good, Pot"),
  "id twice": (changed(FORUM, 'QID="Q2"', 'QID="Q1"'), ": question 'Q1'", "of an earlier question"),
  "comment id twice": (changed(FORUM, "Q1_C2", "Q1_C1"), ": question 'Q1'", "CID 'Q1_C1' twice"),
  "no text": (changed(FORUM, ">Alone<", "> <"), ": question 'Q2'", "has no text"),
  "no body": (changed(FORUM, "<QBody></QBody>", ""), ": question 'Q2'", "0 elements QBody in Question"),
  "no RelQuestion": (
    changed(THREADS_ALONE, "RelQuestion", "RelQ").replace("</RelQuestion", "</RelQ", 1),
    ": question 'Q1_R4'", "0 elements RelQuestion in Thread"),
}  # fmt: skip


JUNK = (b"&amp;", b"&nbsp;", b"<", b"</Comment>", b'"')
WHOLE = (FORUM.encode(), THREADS.encode())


def check_counts(questions, data: bytes):
  root = ET.fromstring(data)
  assert len(questions) == len([*root.iter("Question"), *root.iter("Thread")])
  comments = 0
  for comment in (*root.iter("Comment"), *root.iter("RelComment")):
    texts = []
    for one in (one for tag in ("CBody", "CSubject", "RelCText") for one in comment.findall(tag)):
      texts += [one.text or "", *(inner.tail or "" for inner in one)]
    comments += bool("".join(texts).strip())
  assert sum(len(q.candidates) for q in questions) == comments
