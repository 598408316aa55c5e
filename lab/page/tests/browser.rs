//! Pages in a real browser: nothing goes wrong on them, nothing is asked of a network,
//! what should be there is, and what can be clicked works.

use std::path::Path;

use vellum_page::{Overview, render};
use vellum_results::Loaded;
use vellum_testing::Scratch;
use vellum_testing::browser::{Browser, Look};

#[path = "results/mod.rs"]
mod results;

use results::{ALL, read, value};

/// Widths of windows: a telephone, a tablet, a screen.
const WIDTHS: [u32; 3] = [360, 820, 1280];

struct Page {
    browser: Browser,
    scratch: Scratch,
}

impl Page {
    /// A browser, if there is one.
    fn start(test: &str) -> Option<Self> {
        Some(Self {
            browser: Browser::start(test)?,
            scratch: Scratch::new(&format!("page-{test}")),
        })
    }

    fn open(&mut self, results: &[Loaded]) {
        let page = render(results, &Overview::default());
        let path = self.scratch.write("page.html", page);
        self.browser.open(Path::new(&path));
    }

    fn count(&mut self, selector: &str) -> u64 {
        let count = self
            .browser
            .value(&format!("document.querySelectorAll({selector:?}).length"));
        count.as_u64().expect("a number")
    }

    fn number(&mut self, expression: &str) -> f64 {
        self.browser.value(expression).as_f64().expect("a number")
    }

    fn text(&mut self, expression: &str) -> String {
        let text = self.browser.value(expression);
        text.as_str().unwrap_or_default().to_owned()
    }
}

#[test]
fn pages_of_every_kind_open_without_a_complaint_and_fit_every_width() {
    let Some(mut page) = Page::start("kinds") else {
        return;
    };
    // Marks, lines, bars or shaded ranges that a page of each kind has at least.
    let expected = |name: &str| match name {
        "compare" => (".xy .mark", 15),
        "bench" => ("svg.cell .interval", 14),
        "reproduce" => ("table", 10),
        "scale" => (".xy .mark", 20),
        "simulated" => ("svg.cell .interval", 3),
        "sweep" => (".xy .mark", 6),
        "plan" => (".xy .mark", 15),
        "memory" => (".xy .mark", 20),
        "linux" | "saved" => (".bar", 5),
        "against-core" => (".bar", 10),
        "saved-against-saved" => (".bar", 10),
        _ => ("tbody tr", 10),
    };
    // Where pictures of the pages go, for those who want to look at them.
    let pictures = std::env::var_os("VELLUM_PAGE_PICTURES");
    for name in ALL {
        page.open(&[read(name)]);
        let (selector, least) = expected(name);
        assert!(
            page.count(selector) >= least,
            "{name}: {}",
            page.count(selector)
        );
        assert_eq!(page.count("h1"), 1, "{name}");
        for (width, look) in WIDTHS
            .map(|width| (width, Look::Light))
            .into_iter()
            .chain([(1280, Look::Dark), (820, Look::Print)])
        {
            page.browser.show(width, look);
            let wide = page.number("document.documentElement.scrollWidth");
            assert!(
                wide <= f64::from(width),
                "{name}: {wide} pixels in {width}, {look:?}"
            );
            let picture = page.browser.screenshot();
            assert!(
                picture.len() > 10_000,
                "{name}: a picture of {} bytes",
                picture.len()
            );
            if let Some(directory) = &pictures {
                let path = Path::new(directory).join(format!("{name}-{width}-{look:?}.png.base64"));
                std::fs::write(path, picture).expect("pictures can be written");
            }
        }
        let complaints = page.browser.complaints();
        assert!(complaints.is_empty(), "{name}: {complaints:#?}");
    }
}

#[test]
fn marks_and_lines_lie_inside_their_pictures() {
    let Some(mut page) = Page::start("inside") else {
        return;
    };
    page.browser.show(1280, Look::Light);
    for name in ["compare", "bench", "scale", "plan", "memory"] {
        page.open(&[read(name)]);
        let outside = page.number(
            "[...document.querySelectorAll('.area .mark, .cell .mark')].filter((mark) => {
                const own = mark.getBoundingClientRect();
                const all = mark.closest('.area, .cell').getBoundingClientRect();
                const centre = [(own.left + own.right) / 2, (own.top + own.bottom) / 2];
                return own.width === 0 || centre[0] < all.left - 1 || centre[0] > all.right + 1
                    || centre[1] < all.top - 1 || centre[1] > all.bottom + 1;
            }).length",
        );
        assert_eq!(outside, 0.0, "{name}");
    }
}

#[test]
fn a_click_on_a_header_sorts_and_another_one_turns_the_order() {
    let Some(mut page) = Page::start("sort") else {
        return;
    };
    page.open(&[read("compare")]);
    let table = "[...document.querySelectorAll('table')].find((table) => \
                 table.getAttribute('aria-label').startsWith('time by class'))";
    let column = |number: usize| {
        format!(
            "[...{table}.tBodies[0].rows].map((row) => Number(row.cells[{number}].dataset.key))"
        )
    };
    let click = |number: usize| {
        format!("{table}.tHead.rows[0].cells[{number}].querySelector('button').click()")
    };
    let is_sorted = |list: &[f64]| list.windows(2).all(|pair| pair[0] >= pair[1]);
    let numbers = |page: &mut Page| -> Vec<f64> {
        let list = page.browser.value(&column(1));
        let list = list.as_array().expect("a list").clone();
        list.iter()
            .map(|number| number.as_f64().expect("a number"))
            .collect()
    };
    let before = numbers(&mut page);
    page.browser.value(&click(1));
    let mut down = numbers(&mut page);
    assert!(is_sorted(&down), "{before:?} became {down:?}");
    let state = page.text(&format!(
        "{table}.tHead.rows[0].cells[1].getAttribute('aria-sort')"
    ));
    assert_eq!(state, "descending");
    page.browser.value(&click(1));
    let up = numbers(&mut page);
    down.reverse();
    assert_eq!(up, down);
    page.browser.value(&click(0));
    let first = page.text(&format!("{table}.tBodies[0].rows[0].cells[0].textContent"));
    let last = page.text(&format!(
        "[...{table}.tBodies[0].rows].at(-1).cells[0].textContent"
    ));
    assert!(first < last, "{first} before {last}");
    let complaints = page.browser.complaints();
    assert!(complaints.is_empty(), "{complaints:#?}");
}

#[test]
fn an_arm_is_hidden_in_every_picture_and_table_and_shown_again() {
    let Some(mut page) = Page::start("hide") else {
        return;
    };
    page.open(&[read("compare")]);
    let seen = "[...document.querySelectorAll('.mark.arm-1, .line.arm-1, tr.arm-1')].filter((one) => \
                !one.closest('.legend, dl') && getComputedStyle(one).display !== 'none').length";
    let all = page.number(seen);
    assert!(all > 5.0, "{all}");
    let click = "document.querySelector('.legend > li.arm-1 > button').click()";
    page.browser.value(click);
    assert_eq!(page.number(seen), 0.0);
    let pressed = "[...document.querySelectorAll('.legend > li.arm-1 > button')].map((button) => \
                   button.getAttribute('aria-pressed')).join()";
    assert!(!page.text(pressed).contains("true"));
    let others = "getComputedStyle(document.querySelector('.xy .mark.arm-0')).display";
    assert_ne!(page.text(others), "none");
    page.browser.value(click);
    assert_eq!(page.number(seen), all);
}

#[test]
fn charts_zoom_by_keyboard_and_say_what_is_under_the_pointer() {
    let Some(mut page) = Page::start("zoom") else {
        return;
    };
    page.open(&[read("compare")]);
    let view = "document.querySelector('.xy[data-zoom] .lines').getAttribute('viewBox')";
    assert_eq!(page.text(view), "0 0 10000 10000");
    let press = |key: &str| {
        format!(
            "document.querySelector('.xy[data-zoom]').dispatchEvent(new KeyboardEvent('keydown', {{key: '{key}', \
             bubbles: true, cancelable: true}}))"
        )
    };
    page.browser.value(&press("+"));
    assert_eq!(page.text(view), "2500 0 5000 10000");
    page.browser.value(&press("ArrowLeft"));
    assert_eq!(page.text(view), "1250 0 5000 10000");
    page.browser.value(&press("Escape"));
    assert_eq!(page.text(view), "0 0 10000 10000");
    page.browser.value(
        "{
            const area = document.querySelector('.xy[data-zoom] .area');
            const place = area.getBoundingClientRect();
            area.dispatchEvent(new PointerEvent('pointermove', {clientX: place.left + place.width / 2,
                clientY: place.top + 20, bubbles: true}));
        }",
    );
    let hover = page.text("document.querySelector('.xy[data-zoom] .hover').textContent");
    assert!(hover.contains("B \u{2212} A"), "{hover}");
    let complaints = page.browser.complaints();
    assert!(complaints.is_empty(), "{complaints:#?}");
}

#[test]
fn a_box_of_the_flame_graph_is_made_as_wide_as_the_picture() {
    let Some(mut page) = Page::start("flame") else {
        return;
    };
    page.open(&[read("compare")]);
    let wide = "Number(document.querySelectorAll('.flame g')[3].querySelector('rect').getAttribute('width'))";
    let before = page.number(wide);
    assert!(before < 1180.0, "{before}");
    page.browser.value("document.querySelectorAll('.flame g')[3].dispatchEvent(new MouseEvent('click', {bubbles: true}))");
    let after = page.number(wide);
    assert!((after - 1180.0).abs() < 1.0, "{after}");
    // By keyboard: from the lowest box up, and all of them again.
    page.browser.value(
        "{
            const press = (key) => document.activeElement.dispatchEvent(
                new KeyboardEvent('keydown', {key, bubbles: true, cancelable: true}));
            document.querySelector('.flame g').focus();
            press('Escape');
            press('ArrowUp');
            press('ArrowUp');
        }",
    );
    assert!((page.number(wide) - before).abs() < 1.0);
    let focused = "[...document.querySelectorAll('.flame g')].indexOf(document.activeElement)";
    assert!(page.number(focused) > 0.0);
    let complaints = page.browser.complaints();
    assert!(complaints.is_empty(), "{complaints:#?}");
}

#[test]
fn names_that_are_markup_do_nothing() {
    let Some(mut page) = Page::start("names") else {
        return;
    };
    let poison = "</script><script>window.done = 1; alert(1)</script><img src='x' onerror='window.done = 2'>";
    let mut value = value("compare");
    for name in ["a", "b", "trace"] {
        value["about"][name] = poison.into();
    }
    value["counters"][0]["name"] = poison.into();
    value["profile"]["stacks"]["names"][0] = poison.into();
    value["profile"]["stacks"]["profiles"][0] = poison.into();
    value["run"]["command"][1] = poison.into();
    page.open(&[Loaded::of_value("odd.json", value).expect("a result")]);
    assert!(
        page.browser
            .value("window.done === undefined")
            .as_bool()
            .expect("a truth")
    );
    assert_eq!(page.count("img"), 0);
    assert!(page.text("document.title").contains("<script>"));
    let complaints = page.browser.complaints();
    assert!(complaints.is_empty(), "{complaints:#?}");
}

#[test]
fn a_page_says_everything_without_scripts() {
    let Some(mut page) = Page::start("plain") else {
        return;
    };
    page.browser.run_scripts(false);
    page.open(&[read("compare")]);
    assert_eq!(
        page.count("th button"),
        0,
        "nothing to click that does nothing"
    );
    assert_eq!(page.count(".legend button"), 0);
    assert!(page.count(".xy .mark") >= 15);
    assert!(page.count(".flame g") > 20);
    assert!(page.count("svg[role=img]") > 10);
    let silent = "[...document.querySelectorAll('svg[role=img]')].filter((svg) => \
                  !svg.getAttribute('aria-label')).length";
    assert_eq!(page.number(silent), 0.0, "every picture has a text");
}
