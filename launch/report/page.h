// The page that `lockstep report` writes, page.html, page.css and page.js, as they were when this was built. In the
// page the lines LOCKSTEP_STYLE, LOCKSTEP_DATA and LOCKSTEP_SCRIPT stand for the others and for the data, JSON of which
// page.js has the form.
#pragma once

namespace lockstep {

extern const char* const kPageHtml;
extern const char* const kPageStyle;
extern const char* const kPageScript;

}  // namespace lockstep
