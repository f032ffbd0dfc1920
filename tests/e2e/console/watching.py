"""What must not happen on any page: a script of somebody's data runs, or the policy is broken."""

from playwright.sync_api import Page, Response

_WATCH = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) =>
  window.violations.push(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`));
"""


def watch(page: Page) -> list[str]:
    """The policies of the pages that are opened from now on."""
    policies: list[str] = []

    def keep(answer: Response) -> None:
        if "text/html" in answer.headers.get("content-type", "") and "/console" in answer.url:
            policies.append(answer.headers.get("content-security-policy", ""))

    page.add_init_script(_WATCH)
    page.on("response", keep)
    return policies


def assert_nothing_ran(page: Page) -> None:
    assert page.evaluate("window.ran") is None, page.url
    assert page.evaluate("window.violations") == [], page.url
    assert page.locator("main img, main svg[onload], main script").count() == 0, page.url


def everything_shown(page: Page) -> str:
    """Text of the page, what its fields hold, and the times and numbers between."""
    return str(
        page.evaluate(
            """() => [document.body.textContent, ...[...document.querySelectorAll(
                "input, textarea, option")].map((each) => each.value || each.text)].join("\\n")"""
        )
    )
