//! A headless Chromium that tests open pages in.
//!
//! The browser is spoken to over its DevTools protocol, through a pair of pipes: messages
//! are JSON, each with a zero byte at its end. So no port is opened, and nothing but the
//! browser itself is needed.

use std::io::{BufRead, BufReader, Write, pipe};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use command_fds::{CommandFdExt, FdMapping};
use serde_json::{Value, json};

use crate::Scratch;

/// Names under which Chromium is installed.
const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// How long the browser may take for an answer on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(120);

/// A browser with one page. It ends with the value.
#[derive(Debug)]
pub struct Browser {
    child: Child,
    requests: std::io::PipeWriter,
    messages: Receiver<Value>,
    session: String,
    last: u64,
    /// What the page said since it was opened: events of the protocol.
    events: Vec<Value>,
    _profile: Scratch,
}

/// Whether a medium is emulated, and which.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Look {
    /// On a screen, light.
    Light,
    /// On a screen, dark.
    Dark,
    /// On paper.
    Print,
}

/// The first browser that is installed.
fn installed() -> Option<&'static str> {
    NAMES.into_iter().find(|name| {
        let version = Command::new(name)
            .arg("--version")
            .stderr(Stdio::null())
            .output();
        version.is_ok_and(|output| output.status.success())
    })
}

impl Browser {
    /// A browser with an empty page; none, with a message, if no browser is installed,
    /// which is a failure with `VELLUM_REQUIRE_BROWSER=1` in the environment. `test` names
    /// the directory in which it keeps what it has to.
    ///
    /// # Panics
    /// It cannot be started.
    pub fn start(test: &str) -> Option<Self> {
        let Some(name) = installed() else {
            let required = std::env::var_os("VELLUM_REQUIRE_BROWSER").is_some_and(|v| v == "1");
            assert!(!required, "a browser is required here: install chromium");
            eprintln!("SKIPPED: no page was opened: chromium is not installed");
            return None;
        };
        let profile = Scratch::new(&format!("browser-{test}"));
        let (from_us, requests) = pipe().expect("a pipe");
        let (answers, to_us) = pipe().expect("a pipe");
        let mut command = Command::new(name);
        command
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--disable-dev-shm-usage",
                "--hide-scrollbars",
                "--remote-debugging-pipe",
            ])
            .arg(format!("--user-data-dir={}", profile.path("profile")))
            .arg("about:blank")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // The browser reads from its descriptor 3 and writes to 4.
        let mapping = |parent_fd: OwnedFd, child_fd| FdMapping {
            parent_fd,
            child_fd,
        };
        let mappings = vec![mapping(from_us.into(), 3), mapping(to_us.into(), 4)];
        command.fd_mappings(mappings).expect("two descriptors");
        let child = command.spawn().expect("the browser can be started");
        // What the child has must be closed here, or its end would not be noticed.
        drop(command);
        let (sender, messages) = channel();
        std::thread::spawn(move || {
            let mut answers = BufReader::new(answers);
            let mut bytes = Vec::new();
            while answers
                .read_until(0, &mut bytes)
                .is_ok_and(|length| length > 0)
            {
                bytes.pop();
                let message = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
                if sender.send(message).is_err() {
                    break;
                }
                bytes.clear();
            }
        });
        let mut browser = Self {
            child,
            requests,
            messages,
            session: String::new(),
            last: 0,
            events: Vec::new(),
            _profile: profile,
        };
        let target = browser.call("Target.createTarget", &json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = browser.call("Target.attachToTarget", &attach);
        browser.session = attached["sessionId"]
            .as_str()
            .expect("a session")
            .to_owned();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        Some(browser)
    }

    /// Calls a method of the protocol and waits for its result.
    ///
    /// # Panics
    /// The browser answers with an error, or not at all.
    pub fn call(&mut self, method: &str, parameters: &Value) -> Value {
        self.last += 1;
        let mut request = json!({"id": self.last, "method": method, "params": parameters});
        if !self.session.is_empty() {
            request["sessionId"] = self.session.as_str().into();
        }
        let mut bytes = request.to_string().into_bytes();
        bytes.push(0);
        self.requests.write_all(&bytes).expect("the browser reads");
        loop {
            let message = self.message(method);
            if message["id"] == self.last {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
            self.events.push(message);
        }
    }

    fn message(&self, during: &str) -> Value {
        let message = self.messages.recv_timeout(PATIENCE);
        message.unwrap_or_else(|error| panic!("{during}: the browser does not answer: {error}"))
    }

    /// Opens a file and waits until it is there.
    ///
    /// # Panics
    /// The browser cannot open it.
    pub fn open(&mut self, path: &Path) {
        self.events.clear();
        let path = path.canonicalize().expect("the page is there");
        let url = format!("file://{}", path.display());
        let answer = self.call("Page.navigate", &json!({ "url": url }));
        assert!(answer["errorText"].is_null(), "{url}: {answer}");
        let is_loaded = |event: &Value| event["method"] == "Page.loadEventFired";
        while !self.events.iter().any(is_loaded) {
            let message = self.message("loading the page");
            self.events.push(message);
        }
    }

    /// The value of an expression of JavaScript on the page.
    ///
    /// # Panics
    /// It throws.
    pub fn value(&mut self, expression: &str) -> Value {
        let parameters = json!({"expression": expression, "returnByValue": true});
        let answer = self.call("Runtime.evaluate", &parameters);
        let thrown = &answer["exceptionDetails"];
        assert!(thrown.is_null(), "{expression}: {thrown}");
        answer["result"]["value"].clone()
    }

    /// What went wrong on the page since it was opened: errors and warnings on the
    /// console, exceptions, and requests for anything but the page.
    pub fn complaints(&mut self) -> Vec<String> {
        // Whatever the page did so far has been told before the answer to this.
        self.value("0");
        let pages = |url: &str| url.starts_with("file://") || url.starts_with("data:");
        let complaint = |event: &Value| {
            let parameters = &event["params"];
            match event["method"].as_str()? {
                "Runtime.exceptionThrown" | "Log.entryAdded" => Some(parameters.to_string()),
                "Runtime.consoleAPICalled" => Some(parameters.to_string()),
                "Page.javascriptDialogOpening" => Some(parameters.to_string()),
                "Network.requestWillBeSent" => {
                    let url = parameters["request"]["url"].as_str().unwrap_or_default();
                    let is_page = pages(url) && parameters["type"] == "Document";
                    (!is_page && !url.starts_with("data:")).then(|| format!("request for {url}"))
                }
                _ => None,
            }
        };
        self.events.iter().filter_map(complaint).collect()
    }

    /// Shows the page in a window of this width, in CSS pixels, and in this way.
    pub fn show(&mut self, width: u32, look: Look) {
        let metrics =
            json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", &metrics);
        let scheme = if look == Look::Dark { "dark" } else { "light" };
        let media = json!({
            "media": if look == Look::Print { "print" } else { "screen" },
            "features": [{"name": "prefers-color-scheme", "value": scheme}],
        });
        self.call("Emulation.setEmulatedMedia", &media);
    }

    /// A picture of the whole page as PNG, in base64.
    pub fn screenshot(&mut self) -> String {
        let parameters = json!({"format": "png", "captureBeyondViewport": true});
        let answer = self.call("Page.captureScreenshot", &parameters);
        answer["data"].as_str().unwrap_or_default().to_owned()
    }

    /// Whether scripts run on pages that are opened from now on.
    pub fn run_scripts(&mut self, run: bool) {
        self.call(
            "Emulation.setScriptExecutionDisabled",
            &json!({ "value": !run }),
        );
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
