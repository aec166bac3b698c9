# SPDX-License-Identifier: BSD-3-Clause
# manual.awk: the manual page fastgelu(3) from the registry and the public header, which is the
# contract: its comments become text, its declarations stay as they are.
#
#   awk -f manual.awk functions.def fastgelu.h >fastgelu.3

function escape(text) {
    gsub(/\\/, "\\e", text)
    gsub(/-/, "\\-", text)
    if (text ~ /^[.']/)
        text = "\\\\&" text
    return text
}
function mode(wanted) { # "text", "table" or "code"
    if (wanted == now)
        return
    if (now != "text" && now != "")
        print ".EE\n.RE"
    if (wanted != "text")
        print ".P\n.RS 4\n.EX"
    now = wanted
}
function prose(line) {
    sub(/^ \* ?/, "", line)
    if (line == "") {
        mode("text")
        paragraph = 1
    } else if (line ~ /^  /) {
        mode("table")
        print escape(substr(line, 3))
    } else {
        mode("text")
        # "Special values. ..." begins a part
        if (paragraph && match(line, /^[A-Z][a-z-]*( [a-z]+)?\. /)) {
            print ".SS " escape(substr(line, 1, RLENGTH - 2))
            line = substr(line, RLENGTH + 1)
        } else if (paragraph && !headed) {
            print ".P"
        }
        headed = 0
        print escape(line)
        paragraph = 0
    }
}

FNR == 1 { file++ }

file == 1 {
    if (match($0, /^FG_FUNCTION(_GRAD2)?\(/)) {
        split(substr($0, RLENGTH + 1), field, /[,)] */)
        if (!(field[1] in seen))
            names[++count] = field[1]
        seen[field[1]] = 1
        if (!(field[2] in dtype_seen))
            dtypes[++dtype_count] = field[2]
        dtype_seen[field[2]] = 1
        bound[field[1], field[2]] = field[4]
    }
    next
}

/^#define FASTGELU_VERSION "/ { version = $3; gsub(/"/, "", version) }

# the version is known before the first line is written
{ lines[FNR] = $0; last = FNR }

END {
    print ".\\\" Made from fastgelu.h by manual.awk; do not edit."
    print ".TH fastgelu 3 \"\" \"fastgelu " version "\" \"Library Functions Manual\""
    print ".SH NAME\nfastgelu \\- GELU and SiLU, their slopes and backward passes"
    print ".SH LIBRARY\nlibfastgelu (\\-lfastgelu)"
    print ".SH SYNOPSIS\n.EX\n#include <fastgelu.h>\n"
    print "cc demo.c $(pkg\\-config \\-\\-cflags \\-\\-libs fastgelu)\n.EE"
    print ".SH DESCRIPTION"
    now = "text"
    paragraph = headed = 1
    part = 0 # 0: before the text, 1: in it, 2: what the compiler needs only, 3: declarations
    for (i = 1; i <= last; i++) {
        line = lines[i]
        if (part == 0 && line ~ /^\/\* fastgelu\.h: /) {
            part = 1
        } else if (part == 1) {
            if (line ~ /^ \*\/$/)
                part = 2
            else
                prose(line)
        } else if (line ~ /^\/\* ---- /) {
            mode("text")
            part = 3
            title = line
            gsub(/^\/\* -+ | -+ \*\/$/, "", title)
            gsub(/:.*/, "", title)
            print ".SH " toupper(title)
            headed = 1 # a heading begins a paragraph by itself
        } else if (part == 3 && line ~ /^#(ifdef __cplusplus|endif)/) {
            break
        } else if (part == 3 && (comment || line ~ /^\/\* /)) {
            if (!comment)
                paragraph = 1
            comment = line !~ /\*\/$/
            sub(/^\/\* /, " * ", line)
            sub(/ *\*\/$/, "", line)
            prose(line)
        } else if (part == 3 && line != "") {
            sub(/^FASTGELU_API /, "", line)
            mode("code")
            print escape(line)
        }
    }
    mode("text")
    print ".SH ERROR BOUNDS\nIn ULP, over all inputs of the type; see fastgelu_max_ulp.\n.P\n.RS 4\n.EX"
    line = sprintf("%-24s", "")
    for (d = 1; d <= dtype_count; d++)
        line = line sprintf("%6s", dtypes[d])
    print line
    for (n = 1; n <= count; n++) {
        line = sprintf("%-24s", names[n])
        for (d = 1; d <= dtype_count; d++)
            line = line sprintf("%6s", bound[names[n], dtypes[d]])
        print escape(line)
    }
    print ".EE\n.RE"
    print ".SH ENVIRONMENT\n.TP\nFASTGELU_TARGET\nThe instruction set to use; see fastgelu_target."
}
