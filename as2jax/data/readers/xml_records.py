"""The elements of an XML file that hold one record each, one at a time and with their lines.

expat is used because it knows the line of every element, parses bytes incrementally and reads no
file besides its input.
"""

import dataclasses
from collections.abc import Collection, Iterator
from xml.parsers import expat

from etils import epath

from as2jax.data.lines import UNPACKING, quoted, unpacked
from as2jax.runtime.errors import InputError

CHUNK = 1 << 16  # bytes parsed at once
DEEPEST = 32  # elements inside each other: no format here has more than six


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
    """Return the children called `tag`."""
    return [child for child in self.children if child.tag == tag]


class XmlRecords:
  """The elements called one of `tags`, each with all that is inside it, in the file's order.

  Only one of them is held at a time. Entities that the file declares itself are refused (a few
  lines of them can grow to gigabytes), as is anything but `others` and `tags` around the records,
  where `others` is given. A byte order mark, CR LF and gzip make no difference.

  Raises (while iterating):
    InputError: not well-formed XML, a cut-off file, a wrong encoding, an element that has no place
      there, or no record at all; names file and line.
  """

  def __init__(self, path: epath.PathLike, tags: Collection[str], others: Collection[str] = ()):
    self.path = epath.Path(path)
    self._tags, self._others = frozenset(tags), frozenset(others)
    self._open: list[Element] = []  # from the record inwards
    self._depth = 0  # of the elements around the records
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

  def _parse(self, file) -> bool:
    """Parses the next bytes; False at the end of the file."""
    try:
      data = file.read(CHUNK)
      self._parser.Parse(data, not data)
      return bool(data)
    except UNPACKING as error:
      problem, line = f"the gzip file is cut off or damaged ({error}); get it again", None
    except expat.ExpatError as error:
      problem, line = f"not well-formed XML: {expat.ErrorString(error.code)}", error.lineno
      if not data:
        problem += " (the file ends here: it may be cut off; get it again)"
    except (LookupError, ValueError) as error:  # an encoding that Python does not know
      if isinstance(error, InputError):
        raise
      problem, line = f"the XML declares an encoding that cannot be read ({error})", None
    raise self.error(problem, line or self._parser.CurrentLineNumber)

  def _start(self, tag: str, attributes: dict[str, str]) -> None:
    line = self._parser.CurrentLineNumber
    self._root = self._root or tag
    if self._depth + len(self._open) >= DEEPEST:
      raise self.error(f"more than {DEEPEST} elements inside each other", line)
    if self._open or tag in self._tags:
      if self._open and tag in self._tags:
        raise self.error(
          f"a {tag} stands inside the {self._open[0].tag} of line {self._open[0].line}", line
        )
      self._open.append(Element(tag, attributes, line))
      return
    if self._others and tag not in self._others:
      raise self.error(
        f"the element {quoted(tag)} has no place here; expected "
        f"{', '.join(sorted(self._tags | self._others))}",
        line,
      )
    self._depth += 1

  def _end(self, tag: str) -> None:
    del tag
    if not self._open:
      self._depth -= 1
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

  def _entity(self, name, *_) -> None:
    raise self.error(
      f"the file declares the entity {quoted(name)}, which is refused; use the "
      "file as it was distributed",
      self._parser.CurrentLineNumber,
    )
