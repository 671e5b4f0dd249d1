// Browsers let no file read another one, so the search of a page that was opened as a file finds nothing: say so.
if (location.protocol === "file:") {
  const notice = document.createElement("aside");
  notice.className = "md-banner";
  notice.textContent = "This page was opened as a file, so its search finds nothing. make docs-serve shows the site with its search.";
  notice.style.cssText = "padding: .4rem 1rem; font-size: .7rem; text-align: center;";
  document.body.prepend(notice);
}
