"""The page in a real browser: no error, no script of a text, the keyboard's path, themes.

Needs the system's chromium and chromedriver, and selenium; it skips without them.
"""

import shutil

import page_test
import pytest

from as2jax.report import make

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
pytestmark = [
  pytest.mark.slow,
  pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="no chromium with chromedriver here"),
]


@pytest.fixture(scope="module")
def browser():
  options = webdriver.ChromeOptions()
  options.binary_location = CHROMIUM
  for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
    options.add_argument(argument)
  options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
  driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
  driver.set_window_size(1280, 900)
  yield driver
  driver.quit()


@pytest.fixture(scope="module")
def page(finished_run, tmp_path_factory):
  target = tmp_path_factory.mktemp("page") / "report.html"
  return make.make([str(finished_run(name)) for name in ("bm25", "triplet")], target)


def opened(browser, page):
  """Loads a page; fails on whatever its console says, and on a request."""
  browser.get(f"file://{page}")
  assert browser.get_log("browser") == []
  assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
  return lambda selector: browser.find_elements("css selector", selector)


def shown(find):
  return [row for row in find("#per-question tbody tr[data-q]") if row.is_displayed()]


def until(condition):
  from selenium.webdriver.support.ui import WebDriverWait

  return WebDriverWait(None, 10).until(lambda _: condition())


def test_a_question_is_found_opened_and_closed_by_keys_alone(browser, page):
  from selenium.webdriver.common.keys import Keys

  find = opened(browser, page)
  body = find("body")[0]
  body.send_keys("/")
  active = lambda: browser.switch_to.active_element
  assert active().get_attribute("id") == "search"
  total = len(shown(find))
  active().send_keys("who")
  until(lambda: 0 < len(shown(find)) < total)
  button = shown(find)[0].find_element("css selector", "button")
  while active() != button:
    active().send_keys(Keys.TAB)
  active().send_keys(Keys.ARROW_DOWN)
  second = shown(find)[1].find_element("css selector", "button")
  assert active() == second
  active().send_keys(Keys.ENTER)
  until(lambda: len(find(".panel .lists > div")) == 2)
  assert second.get_attribute("aria-expanded") == "true"
  lists = [part.find_elements("css selector", "li") for part in find(".panel .lists > div")]
  assert len(lists[0]) == len(lists[1]) > 1
  assert find(".panel li.right")
  active().send_keys(Keys.ESCAPE)
  assert not find(".panel") and active() == second
  assert second.get_attribute("aria-expanded") == "false"
  assert browser.get_log("browser") == []


def test_columns_sort_and_filters_keep_what_they_name(browser, page):
  find = opened(browser, page)
  find("#per-question thead button")[-1].click()
  values = [row.text.split()[-1].replace("−", "-") for row in shown(find)]
  numbers = [float(value) for value in values]
  assert numbers == sorted(numbers, reverse=True) and numbers[0] > numbers[-1]
  find("#filter option[value=worse]")[0].click()
  assert all(row.text.split()[-1].startswith("−") for row in shown(find))
  find("#filter option[value='']")[0].click()
  assert len(shown(find)) == 68


def test_hostile_texts_are_shown_and_execute_nothing(browser, tmp_path):
  run = page_test.hostile_run(tmp_path)
  from urllib.parse import quote

  find = opened(browser, quote(str(run / make.NAME)))
  assert page_test.HOSTILE in find("#per-question tbody button")[0].text
  find("#per-question tbody button")[0].click()
  until(lambda: find(".panel li"))
  assert page_test.HOSTILE in find(".panel li div > span")[0].text
  assert browser.title == run.name and not find("main img")
  assert browser.get_log("browser") == []


@pytest.mark.parametrize("width", [1280, 380])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_fits_the_window_in_both_themes(browser, page, width, theme):
  features = [{"name": "prefers-color-scheme", "value": theme}]
  browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
  metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
  browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
  opened(browser, page)
  assert browser.execute_script("return document.documentElement.scrollWidth") <= width
  cut = (
    "return [...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1"
    " && !e.closest('.scroll')).map(e => e.outerHTML)"
  )
  assert browser.execute_script(cut) == []
  paper = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
  assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(21, 24, 28)"}[theme]
  browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
  browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
