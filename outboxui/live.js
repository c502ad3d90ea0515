// Reads the page again while something runs, or while its address says so, and swaps its content.
// Focus and open details stay. Without this script ?follow=5 does the same by a header.
'use strict';
(() => {
  const main = document.getElementById('main');
  const every = Number(main.dataset.live || 0);
  if (!every || new URLSearchParams(location.search).has('follow')) return;
  let timer;
  const again = async () => {
    const busy = main.contains(document.activeElement) && /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName);
    if (!document.hidden && !busy) {
      try {
        const answer = await fetch(location.href, { redirect: 'error' });
        if (answer.ok) swap(new DOMParser().parseFromString(await answer.text(), 'text/html'));
      } catch { /* the next time */ }
    }
    if (main.dataset.live) timer = setTimeout(again, every * 1000);
  };
  const swap = (page) => {
    const next = page.getElementById('main');
    if (!next) return;
    if ([...main.querySelectorAll('textarea, input')].some((e) => e.value !== e.defaultValue || e.checked !== e.defaultChecked)) return; // typed, not sent
    const name = (e) => e && e.tagName + e.textContent.trim();
    const open = new Set([...main.querySelectorAll('details[open] > summary')].map(name));
    const focused = main.contains(document.activeElement) ? name(document.activeElement) : null;
    const said = main.querySelector('[role=status]');
    main.replaceChildren(...next.childNodes);
    const status = main.querySelector('[role=status]');
    if (said && status) { // the same element, so that a screen reader speaks what has changed
      said.textContent = status.textContent;
      status.replaceWith(said);
    }
    main.querySelectorAll('summary').forEach((e) => { if (open.has(name(e))) e.parentElement.open = true; });
    if (focused) {
      [...main.querySelectorAll('a, button, summary, [tabindex]')].find((e) => name(e) === focused)?.focus({ preventScroll: true });
    }
    document.title = page.title;
    const foot = page.querySelector('footer');
    if (foot) document.querySelector('footer').replaceWith(foot);
    if (next.dataset.live) main.dataset.live = next.dataset.live;
    else delete main.dataset.live;
  };
  timer = setTimeout(again, every * 1000);
  addEventListener('pagehide', () => clearTimeout(timer));
})();
