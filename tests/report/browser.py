"""The system's own Chromium without a window, driven through its debugging pipe."""

import base64
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def find_browser() -> str | None:
    """Where this machine's Chromium is."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page in one browser. Messages are JSON, each ended by a zero byte."""

    def __init__(self, program: str, profile: Path, size: tuple[int, int] = (1300, 900)) -> None:
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()

        def pipes() -> None:  # Chromium reads from 3 and writes to 4
            first, second = os.dup(to_browser), os.dup(from_browser)
            os.dup2(first, 3)
            os.dup2(second, 4)

        self._process = subprocess.Popen(
            [
                program, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
                "--disable-dev-shm-usage", "--remote-debugging-pipe", "--hide-scrollbars",
                f"--user-data-dir={profile}", f"--window-size={size[0]},{size[1]}", "about:blank",
            ],
            preexec_fn=pipes, close_fds=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        self._rest = b""
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the protocol; events that arrive before its answer are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self.events.append(answer)

    def open(self, file: Path, seconds: float = 60) -> None:
        """Load a file and wait until its script says that it is ready."""
        self.call("Page.navigate", url=file.resolve().as_uri())
        self.wait("document.body && document.body.dataset.ready === 'yes'", seconds)

    def wait(self, condition: str, seconds: float = 20) -> None:
        end = time.monotonic() + seconds
        while not self.value(f"!!({condition})"):
            assert time.monotonic() < end, f"not so within {seconds} s: {condition}"
            time.sleep(0.05)

    def value(self, expression: str) -> Any:
        """What an expression is on the page."""
        reply = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in reply, reply["exceptionDetails"]
        return reply["result"].get("value")

    def click(self, selector: str, times: int = 1) -> None:
        """With the mouse, where the element is."""
        where = f"document.querySelector({json.dumps(selector)})"
        x, y = self.value(
            f"(() => {{ const e = {where}; e.scrollIntoView({{block: 'center'}});"
            "const r = e.getBoundingClientRect();"
            "return [r.x + Math.min(r.width, 300) / 2, r.y + r.height / 2]; })()"
        )
        for count in range(1, times + 1):
            for kind in ("mousePressed", "mouseReleased"):
                self.call(
                    "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left",
                    clickCount=count,
                )  # fmt: skip

    def choose(self, selector: str, value: str) -> None:
        """An option of a list, as a reader would."""
        where = f"document.querySelector({json.dumps(selector)})"
        self.value(
            f"(() => {{ const e = {where}; e.value = {json.dumps(value)};"
            "e.dispatchEvent(new Event('change', {bubbles: true})); return e.value; })()"
        )
        assert self.value(f"{where}.value") == value

    def type(self, selector: str, text: str) -> None:
        """Letters into a field."""
        self.click(selector)
        self.call("Input.insertText", text=text)

    def screenshot(self, file: Path, *, whole: bool = False) -> None:
        """A picture of the window, or of the whole page."""
        reply = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(reply["data"]))

    def requested(self) -> list[str]:
        """Every address that the page asked for."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]

    def complaints(self) -> list[str]:
        """Errors of the page's script or its console."""
        kinds = ("Runtime.exceptionThrown", "Log.entryAdded")
        return [str(e["params"]) for e in self.events if e.get("method") in kinds]

    def close(self) -> None:
        os.close(self._write)  # Chromium ends when its pipe does
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._read)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            more = os.read(self._read, 1 << 20)
            assert more, "the browser has gone"
            self._rest += more
        message, self._rest = self._rest.split(b"\0", 1)
        return json.loads(message)
