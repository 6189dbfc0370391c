"""Reads tasks with SkyPilot's own schema and parser; run in an environment that has SkyPilot."""

import json
import sys

import sky
import yaml
from sky.utils import common_utils, schemas


def regions(path):
  with open(path) as file:
    task = yaml.safe_load(file)
  common_utils.validate_schema(task, schemas.get_task_schema(), "task: ")
  common_utils.validate_schema(task["resources"], schemas.get_resources_schema(), "resources: ")
  task["resources"]["spot"] = True  # a key that it does not have: the schema is not empty
  try:
    common_utils.validate_schema(task["resources"], schemas.get_resources_schema(), "")
  except ValueError:
    pass
  else:
    raise AssertionError("the schema takes anything")
  return sorted(resources.region for resources in sky.Task.from_yaml(path).resources)


print(json.dumps({path: regions(path) for path in sys.argv[1:]}))
