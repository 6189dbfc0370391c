import pytest

from as2jax.data.readers import xml_records
from as2jax.data.readers.xml_records import XmlRecords
from as2jax.runtime.errors import InputError


def written(folder, data: bytes):
  path = folder / "records.xml"
  path.write_bytes(data)
  return path


def many(n: int) -> bytes:
  rows = "".join(f'<r id="{i}">\n<a>caf\u00e9 {i}</a><b/> tail</r>\n' for i in range(n))
  return f"<all>\n{rows}</all>".encode()


def content(path):
  return [
    (r.attributes["id"], r.line, r.text, [(c.tag, c.text) for c in r.children])
    for r in XmlRecords(path, ("r",))
  ]


@pytest.mark.parametrize("chunk", [1, 7, 1 << 16])
def test_records_with_their_lines_whatever_the_pieces(tmp_path, monkeypatch, chunk):
  monkeypatch.setattr(xml_records, "CHUNK", chunk)
  actual = content(written(tmp_path, many(5)))
  assert actual == [
    (str(i), 2 + 2 * i, "tail", [("a", f"caf\u00e9 {i}"), ("b", "")]) for i in range(5)
  ]


def test_records_come_before_the_rest_is_read(tmp_path, monkeypatch):
  monkeypatch.setattr(xml_records, "CHUNK", 64)
  broken = many(100)[:-6] + b"</wrong>"
  records = iter(XmlRecords(written(tmp_path, broken), ("r",)))
  assert next(records).attributes["id"] == "0"
  with pytest.raises(InputError, match=r"records.xml:202: not well-formed XML: mismatched tag"):
    list(records)


def test_a_laughing_file_is_refused(tmp_path):
  entities = "".join(f'<!ENTITY e{i + 1} "{f"&e{i};" * 10}">\n' for i in range(9))
  data = f'<!DOCTYPE all [<!ENTITY e0 "ha">\n{entities}]><all><r id="1">&e9;</r></all>'
  with pytest.raises(InputError, match=r":1: the file declares the entity 'e0', which is refused"):
    content(written(tmp_path, data.encode()))
