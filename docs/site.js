// Regions that scroll can be reached with the keyboard; the empty anchors of code lines cannot.
addEventListener("load", () => {
  for (const region of document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset pre > code")) {
    region.tabIndex = 0;
  }
  for (const anchor of document.querySelectorAll('a[id^="__codelineno"]')) {
    anchor.tabIndex = -1;
    anchor.ariaHidden = "true";
  }
});
