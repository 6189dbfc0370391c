"""Files of data sets that are wrong: an error with its place, or the counts that another reader finds."""

import asnq_test
import pytest
import semeval_test
import squad_test
import trecqa_test
import yahoo_test
from hypothesis import given
from hypothesis import strategies as st

from tests.file_damage import check_refusals, damaged, read_or_refused, written

READERS = (asnq_test, semeval_test, squad_test, trecqa_test, yahoo_test)
READERS = pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)


@READERS
def test_refusals(tmp_path, reader):
  check_refusals(reader.read, tmp_path / "file", reader.BROKEN)


@READERS
@given(drawn=st.data())
def test_damage_is_an_error_or_changes_no_count(tmp_path, drawn, reader):
  data = damaged(drawn.draw, drawn.draw(st.sampled_from(reader.WHOLE)), reader.JUNK)
  found = read_or_refused(reader.read, written(tmp_path, data))
  if found is not None:
    reader.check_counts(found, data)
