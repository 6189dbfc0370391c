"""The elements of an XML file that hold one record each, one at a time and with their lines.

expat is used because it knows the line of every element, parses bytes incrementally and reads no
file besides its input.
"""

import dataclasses
from collections.abc import Collection, Iterator
from typing import BinaryIO
from xml.parsers import expat

from etils import epath

from as2jax.data.lines import UNPACKING, quoted, unpacked
from as2jax.runtime.errors import InputError

CHUNK = 1 << 16  # bytes parsed at once


@dataclasses.dataclass(slots=True)
class Element:
  """An element: `text` is the characters directly in it, with runs of white space as one space."""

  tag: str
  attributes: dict[str, str]
  line: int
  text: str = ""
  children: list["Element"] = dataclasses.field(default_factory=list)
  pieces: list[str] = dataclasses.field(default_factory=list)

  def all(self, tag: str) -> list["Element"]:
    """Return the children with a tag."""
    return [child for child in self.children if child.tag == tag]


class XmlRecords:
  """The elements called one of `tags`, each with all that is inside it, in the file's order.

  Only one of them is held at a time. Entities that the file declares itself are refused: a few
  lines of them can grow to gigabytes. A byte order mark, CR LF and gzip make no difference.

  Raises (while iterating):
    InputError: not well-formed XML, a cut-off file, a wrong encoding, a record inside a record, or
      no record at all; names file and line.
  """

  def __init__(self, path: epath.PathLike, tags: Collection[str]):
    self.path = epath.Path(path)
    self._tags = frozenset(tags)
    self._open: list[Element] = []  # from the record inwards
    self._done: list[Element] = []
    self._root = ""

  def error(self, problem: str, line: int) -> InputError:
    """Return the error for `problem` on `line`."""
    return InputError(f"{self.path}:{line}: {problem}")

  def __iter__(self) -> Iterator[Element]:
    self._parser = parser = expat.ParserCreate(namespace_separator="}")
    parser.buffer_text = True
    parser.StartElementHandler = self._start
    parser.EndElementHandler = self._end
    parser.CharacterDataHandler = self._characters
    parser.EntityDeclHandler = self._entity
    count = 0
    with unpacked(self.path) as file:
      more = True
      while more:
        more = self._parse(file)
        count += len(self._done)
        yield from self._done
        self._done.clear()
    if not count:
      raise self.error(
        f"the file holds no {' or '.join(sorted(self._tags))}, its outermost element is "
        f"{self._root}: it is another file or another format",
        parser.CurrentLineNumber,
      )

  def _parse(self, file: BinaryIO) -> bool:
    """Parse the next bytes; return False at the end of the file."""
    try:
      data = file.read(CHUNK)
      self._parser.Parse(data, not data)
      return bool(data)
    except UNPACKING as error:
      problem = f"the gzip file is cut off or damaged ({error}); get it again"
    except expat.ExpatError as error:
      problem = f"not well-formed XML: {expat.ErrorString(error.code)}"
      if not data:
        problem += " (the file ends here: it may be cut off; get it again)"
      raise self.error(problem, error.lineno) from error
    except InputError:
      raise
    except (LookupError, ValueError) as error:  # an encoding that Python does not know
      problem = f"the XML declares an encoding that cannot be read ({error})"
    raise self.error(problem, self._parser.CurrentLineNumber)

  def _start(self, tag: str, attributes: dict[str, str]) -> None:
    line = self._parser.CurrentLineNumber
    self._root = self._root or tag
    if self._open and tag in self._tags:
      record = self._open[0]
      raise self.error(f"a {tag} stands inside the {record.tag} of line {record.line}", line)
    if self._open or tag in self._tags:
      self._open.append(Element(tag, attributes, line))

  def _end(self, tag: str) -> None:
    del tag
    if not self._open:
      return
    element = self._open.pop()
    element.text = " ".join("".join(element.pieces).split())
    element.pieces.clear()
    if self._open:
      self._open[-1].children.append(element)
    else:
      self._done.append(element)

  def _characters(self, text: str) -> None:
    if self._open:
      self._open[-1].pieces.append(text)

  def _entity(self, name: str, *_: object) -> None:
    raise self.error(
      f"the file declares the entity {quoted(name)}, which is refused; use the file as it was "
      "distributed",
      self._parser.CurrentLineNumber,
    )
