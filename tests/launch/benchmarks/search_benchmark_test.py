"""The benchmark of exact search: which pool it searches."""

import numpy as np

from launch.benchmarks import search


def test_a_file_lies_in_memory_where_that_is_asked_for(tmp_path, monkeypatch):
  file = tmp_path / "pool.npy"
  np.save(file, np.ones((3, 2), np.float32))
  pools = []
  monkeypatch.setattr(search, "measure", lambda pool, **_: pools.append(pool) or {})
  search.main([f"--file={file}"])
  search.main([f"--file={file}", "--memory"])
  search.main(["--pool=5", "--dimension=4", "--memory"])
  assert [isinstance(pool, np.memmap) for pool in pools] == [True, False, False]
  assert [pool.shape for pool in pools] == [(3, 2), (3, 2), (5, 4)]
