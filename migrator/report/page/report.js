const filter = document.getElementById("filter");
const shown = document.getElementById("shown");
const toggle = document.getElementById("toggle");
const files = [...document.querySelectorAll("details.file")];

// A file stays if its path or one of its findings has every word; other findings of the file are hidden.
function apply() {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  let count = 0;
  for (const file of files) {
    const path = file.dataset.path.toLowerCase();
    const has = text => words.every(word => text.includes(word));
    let any = has(path);
    const all = any;
    for (const item of file.querySelectorAll("[data-words]")) {
      const hit = all || has(path + " " + item.dataset.words.toLowerCase());
      item.hidden = !hit;
      any ||= hit;
    }
    file.hidden = !any;
    document.querySelector(`tr[data-file="${file.dataset.file}"]`).hidden = !any;
    count += any;
  }
  shown.value = words.length ? `${count} of ${files.length} files` : "";
}

function reveal() {
  const target = document.getElementById(location.hash.slice(1));
  const file = target && target.closest("details.file");
  if (file && !file.open) {
    file.open = true;
    target.scrollIntoView();
  }
}

filter.addEventListener("input", apply);
for (const link of document.querySelectorAll("[data-filter]")) {
  link.addEventListener("click", () => { filter.value = link.dataset.filter; apply(); });
}
toggle.addEventListener("click", () => {
  const open = files.some(file => !file.open);
  for (const file of files) file.open = open;
  toggle.textContent = open ? "Close all" : "Open all";
});
addEventListener("hashchange", reveal);
addEventListener("beforeprint", () => { for (const file of files) file.open = true; });
document.getElementById("tools").hidden = false;
reveal();
