// Behavior of the dashboard: sign-in, CSRF token, chat streams, connection notice, keyboard, charts.
"use strict";

(() => {
  const meta = (name) => document.querySelector(`meta[name="${name}"]`)?.content || "";

  document.addEventListener("htmx:configRequest", (event) => {
    event.detail.headers["X-CSRF-Token"] = meta("csrf");
  });

  // An error answer of the server is a notice made by us: show it instead of dropping it.
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.xhr.status >= 400) {
      const notices = document.getElementById("notices");
      if (event.detail.xhr.status === 401) {
        location.assign("/sign-in");
        return;
      }
      event.detail.shouldSwap = false;
      showNotice(notices, event.detail.xhr);
    }
  });

  function showNotice(notices, answer) {
    const box = document.createElement("div");
    if ((answer.getResponseHeader("content-type") || "").startsWith("text/html")) {
      box.innerHTML = answer.responseText;
    } else {
      box.className = "notice bad";
      box.textContent = answer.responseText.slice(0, 300) || "That did not work.";
    }
    box.setAttribute("role", "alert");
    notices.replaceChildren(box);
    box.scrollIntoView({ block: "nearest" });
  }

  // A part that cannot reach the server says so, and recovers with the next answer.
  const offline = () => document.getElementById("offline");
  document.addEventListener("htmx:sendError", () => offline()?.removeAttribute("hidden"));
  document.addEventListener("htmx:afterRequest", (event) => {
    if (event.detail.successful) offline()?.setAttribute("hidden", "");
  });

  function follow(element) {
    if (element.dataset.following) return;
    element.dataset.following = "yes";
    const source = new EventSource(element.dataset.stream);
    source.addEventListener("progress", (event) => {
      element.innerHTML = JSON.parse(event.data);
    });
    source.addEventListener("answer", (event) => {
      source.close();
      element.outerHTML = JSON.parse(event.data);
      scrollChat();
      htmx.process(document.getElementById("chat-log"));
    });
    source.addEventListener("error", () => {
      if (source.readyState === EventSource.CLOSED) offline()?.removeAttribute("hidden");
    });
  }

  function scrollChat() {
    const log = document.getElementById("chat-log");
    if (log) log.scrollTop = log.scrollHeight;
  }

  function prepare(root) {
    for (const element of root.querySelectorAll("[data-stream]")) follow(element);
    for (const element of root.querySelectorAll("[data-chart]")) draw(element);
    scrollChat();
  }

  document.addEventListener("DOMContentLoaded", () => {
    prepare(document);
    const link = location.hash.slice(1);
    const form = document.getElementById("sign-in");
    if (form && link) {
      history.replaceState(null, "", location.pathname);
      form.elements.link.value = link;
      form.submit();
    }
  });
  document.addEventListener("htmx:afterSettle", (event) => prepare(event.detail.elt.ownerDocument));

  document.addEventListener("htmx:afterRequest", (event) => {
    if (event.detail.elt.id !== "chat-form" || !event.detail.successful) return;
    event.detail.elt.reset();
    document.getElementById("chat-empty")?.remove();
  });

  document.addEventListener("click", (event) => {
    const example = event.target.closest("[data-say]");
    if (!example) return;
    const box = document.getElementById("chat-text");
    if (box) {
      box.value = example.dataset.say;
      box.focus();
    }
  });

  // Enter sends, Shift+Enter breaks the line; "/" goes to the search field of a page.
  document.addEventListener("keydown", (event) => {
    if (event.target.id === "chat-text" && event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      event.target.form.requestSubmit();
    }
    const typing = event.target.closest("input, textarea, select");
    if (event.key === "/" && !typing) {
      const search = document.querySelector("input[type=search]");
      if (search) {
        event.preventDefault();
        search.focus();
      }
    }
  });

  function draw(element) {
    if (element.dataset.drawn || !window.uPlot) return;
    element.dataset.drawn = "yes";
    const data = JSON.parse(element.dataset.chart);
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    const axis = { stroke: color("--text-2"), grid: { stroke: color("--line"), width: 1 } };
    new uPlot(
      {
        width: element.clientWidth,
        height: 220,
        scales: { x: { time: true } },
        axes: [axis, axis],
        legend: { show: true },
        series: [
          {},
          ...data.series.map((one, index) => ({
            label: one.label,
            stroke: color(["--accent", "--warn", "--bad"][index % 3]),
            dash: index ? [6, 4] : undefined,
            width: 2,
            points: { show: data.x.length < 60, size: 6 },
          })),
        ],
      },
      [data.x, ...data.series.map((one) => one.values)],
      element,
    );
  }
})();
