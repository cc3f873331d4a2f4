# Comments of the headers as Doxygen reads them: those before a declaration, those behind a member, and the file's own at its head.
FNR == 1 && /^\/\// { print "/// @file"; sub(/^\/\//, "///"); print; head = 1; next }
head && /^\/\// { sub(/^\/\//, "///"); print; next }
{ head = 0 }
/^ *\/\/ / { sub(/\/\/ /, "/// "); print; next }
/^( |  |   |    )?[^ ].*[;,})] +\/\/ / { sub(/ \/\/ /, " ///< "); print; next }
{ print }
