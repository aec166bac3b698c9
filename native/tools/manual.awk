# SPDX-License-Identifier: BSD-3-Clause
# manual.awk: the manual page fastgelu(3) from the registry and the public header, which is the
# contract: its comments become text, its declarations stay as they are.
#
#   awk -f manual.awk functions.def fastgelu.h >fastgelu.3
#   awk -v markdown=1 -f manual.awk functions.def fastgelu.h >fastgelu.md

function escape(text) {
    if (markdown)
        return now == "text" ? markdown_escape(text) : text
    gsub(/\\/, "\\e", text)
    gsub(/-/, "\\-", text)
    if (text ~ /^[.']/)
        text = "\\\\&" text
    return text
}
function markdown_escape(text) {
    gsub(/[\\*_`<>\[\]]/, "\\\\&", text)
    if (text ~ /^[-+#] /) # no list, no heading
        text = "\\" text
    return text
}
function paragraph_break() {
    print markdown ? "" : ".P"
}
function heading(text, level) {
    if (markdown)
        print "\n" (level == 1 ? "## " : "### ") toupper(substr(text, 1, 1)) substr(text, 2) "\n"
    else
        print (level == 1 ? ".SH " toupper(text) : ".SS " escape(text))
}
function begin_code() {
    print markdown ? "\n```c" : ".P\n.RS 4\n.EX"
}
function begin_table() {
    print markdown ? "\n```text" : ".P\n.RS 4\n.EX"
}
function end_code() {
    print markdown ? "```\n" : ".EE\n.RE"
}
function mode(wanted) { # "text", "table" or "code"
    if (wanted == now)
        return
    if (now != "text" && now != "")
        end_code()
    if (wanted == "code")
        begin_code()
    else if (wanted == "table")
        begin_table()
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
            heading(substr(line, 1, RLENGTH - 2), 2)
            line = substr(line, RLENGTH + 1)
        } else if (paragraph && !headed) {
            paragraph_break()
        }
        headed = 0
        print escape(line)
        paragraph = 0
    }
}

function larger(a, b) {
    return a > b ? a : b
}
# As in dispatch.c.
function fused_bound(dtype, shape, form) {
    if (shape == "value_and_grad")
        return larger(bound[form, dtype] + 0, bound[form "_grad", dtype] + 0)
    if (dtype ~ /16$/)
        return 0.501
    if (shape == "bias")
        return bound[form, dtype]
    if (shape == "bias_backward")
        return bound[form "_backward", dtype]
    if (shape == "glu")
        return 2 * bound[form, dtype] + 0.5
    return larger(bound[form "_backward", dtype] + 1, 2 * bound[form, dtype] + 0.5)
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
    } else if (match($0, /^FG_FUSED\(/)) {
        split(substr($0, RLENGTH + 1), field, /[,)] */)
        if (!(field[1] in seen))
            names[++count] = field[1]
        seen[field[1]] = 1
        bound[field[1], field[2]] = fused_bound(field[2], field[3], field[4])
    }
    next
}

/^#define FASTGELU_VERSION "/ { version = $3; gsub(/"/, "", version) }

# the version is known before the first line is written
{ lines[FNR] = $0; last = FNR }

END {
    if (!markdown) {
        print ".\\\" Made from fastgelu.h by manual.awk; do not edit."
        print ".TH fastgelu 3 \"\" \"fastgelu " version "\" \"Library Functions Manual\""
        print ".SH NAME\nfastgelu \\- GELU and SiLU, their slopes and backward passes"
        print ".SH LIBRARY\nlibfastgelu (\\-lfastgelu)"
        print ".SH SYNOPSIS\n.EX\n#include <fastgelu.h>\n"
        print "cc demo.c $(pkg\\-config \\-\\-cflags \\-\\-libs fastgelu)\n.EE"
        print ".SH DESCRIPTION"
    } else {
        heading("for every function", 1)
    }
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
            heading(title, 1)
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
    heading("error bounds", 1)
    print escape("In ULP, over all inputs of the type; see fastgelu_max_ulp.")
    mode("table")
    line = sprintf("%-30s", "")
    for (d = 1; d <= dtype_count; d++)
        line = line sprintf("%6s", dtypes[d])
    print line
    for (n = 1; n <= count; n++) {
        line = sprintf("%-30s", names[n])
        for (d = 1; d <= dtype_count; d++)
            line = line sprintf("%6s", bound[names[n], dtypes[d]])
        print escape(line)
    }
    mode("text")
    if (!markdown)
        print ".SH ENVIRONMENT\n.TP\nFASTGELU_TARGET\nThe instruction set to use; see fastgelu_target."
}
