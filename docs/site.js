// Regions that scroll can be reached with the keyboard; the empty anchors of code lines cannot.
addEventListener("load", () => {
  const wide = ".md-typeset__scrollwrap, .md-typeset pre > code, p:has(> img[src*='pictures/'])";
  for (const region of document.querySelectorAll(wide)) {
    region.tabIndex = 0;
  }
  for (const button of document.querySelectorAll("nav.md-code__nav")) {
    button.role = "none"; // one button to copy the code is no navigation
  }
  for (const anchor of document.querySelectorAll('a[id^="__codelineno"]')) {
    anchor.tabIndex = -1;
    anchor.ariaHidden = "true";
  }
});
