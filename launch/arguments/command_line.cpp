#include "launch/arguments/command_line.h"

#include <algorithm>
#include <boost/program_options.hpp>
#include <charconv>
#include <sstream>

#include "core/base/error.h"
#include "core/base/text_table.h"
#include "launch/config/did_you_mean.h"
#include "launch/config/other_names.h"
#include "launch/terminal/output.h"

namespace lockstep {
namespace po = boost::program_options;

namespace {

// For an error: where to find what is right.
std::string usage_of(const Command& command) {
  return str("\nusage: lockstep ", command.usage, "\n`lockstep ", command.name, " --help` says more");
}

// Of an option that a command does not have: a similar one, or the key that other programs call so.
std::string meant_by(const Command& command, std::string word) {
  word.erase(0, word.find_first_not_of('-'));
  std::vector<std::string> names;
  for (const Option& o : command.options) names.push_back(o.long_name());
  if (const std::string best = nearest(word, names); !best.empty()) return str("; did you mean --", best, "?");
  std::replace(word.begin(), word.end(), '-', '_');
  if (command.usage.find("key.path=value") == command.usage.npos) return "";
  for (const OtherName& other : other_names())
    if (other.name == word)
      return other.ours.empty() ? str("; ", other.note)
                                : str("; a key of the configuration is given as ", other.ours, "=VALUE");
  return "";
}

std::string usages_of(const std::vector<Command>& forms) {
  std::string out;
  for (const Command& c : forms) out += str(out.empty() ? "usage: " : "       ", "lockstep ", c.usage, "\n");
  return out;
}

constexpr size_t kColumns = 80;

// A text in lines of at most kColumns, those after the first of a paragraph indented. A line of the text that is
// shorter than kFull ends a paragraph; a longer one goes on in the next.
std::string in_columns(const std::string& text, size_t indent) {
  constexpr size_t kFull = 70;
  std::string out, paragraph;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    paragraph += (paragraph.empty() ? "" : " ") + line;
    if (line.size() >= kFull && lines.peek() != EOF) continue;
    out += wrapped(paragraph, kColumns, "", std::string(indent, ' '));
    paragraph.clear();
  }
  return out;
}

// A default as it is shown: a line end is written as in C.
std::string shown_default(const std::string& value) {
  std::string out;
  for (const char c : value) out += c == '\n' ? std::string("\\n") : std::string(1, c);
  return out;
}

po::options_description program_options_of(const Command& command) {
  po::options_description visible("Options");
  visible.add_options()("help,h", "show this text");
  for (const Option& o : command.options) {
    if (o.repeats)
      visible.add_options()(o.name.c_str(), po::value<std::vector<std::string>>()->value_name(o.value), o.help.c_str());
    else if (o.value.empty()) visible.add_options()(o.name.c_str(), po::bool_switch(), o.help.c_str());
    else
      visible.add_options()(
          o.name.c_str(),
          po::value<std::string>()->value_name(o.value)->default_value(o.standard, shown_default(o.standard)),
          o.help.c_str());
  }
  return visible;
}

std::string help_of(const Command& command) {
  std::ostringstream text;
  text << in_columns("usage: lockstep " + command.usage, 7) << "\n"
       << in_columns(command.help, 0) << "\n"
       << program_options_of(command);
  return text.str();
}

// Throws ExitCode::kUsage where the first positional argument is not one that the command has.
size_t index_of_word(const Command& command, const std::string& word) {
  const auto& words = command.words;
  const auto at = std::find(words.begin(), words.end(), word);
  require(at != words.end(), ExitCode::kUsage, "lockstep ", command.name, ": there is no '", word, "'",
          did_you_mean(word, words), usage_of(command));
  return static_cast<size_t>(at - words.begin());
}

Arguments parse_form(const Command& command, const std::vector<std::string>& arguments) {
  const po::options_description visible = program_options_of(command);
  po::options_description all;
  all.add(visible).add_options()("positional", po::value<std::vector<std::string>>());
  po::positional_options_description positional;
  positional.add("positional", -1);
  Arguments out;
  out.form = command.form();
  try {
    po::variables_map map;
    using Style = po::command_line_style::style_t;
    po::store(po::command_line_parser(arguments)
                  .options(all)
                  .positional(positional)
                  .style(static_cast<int>(Style::unix_style) & ~static_cast<int>(Style::allow_guessing))
                  .run(),
              map);
    po::notify(map);
    if (map.count("positional")) out.positional = map["positional"].as<std::vector<std::string>>();
    if (map.count("help")) {
      const bool of_word = !command.of_words.empty() && !out.positional.empty();
      print_out(help_of(of_word ? command.of_words[index_of_word(command, out.positional[0])] : command));
      out.help = true;
      return out;
    }
    for (const Option& o : command.options) {
      const std::string name = o.long_name();
      if (o.repeats) {
        std::string& lines = out.values[name];
        if (!map.count(name)) continue;
        for (const std::string& one : map[name].as<std::vector<std::string>>()) lines += one + "\n";
        continue;
      }
      out.values[name] = o.value.empty() ? (map[name].as<bool>() ? "true" : "false") : map[name].as<std::string>();
    }
  } catch (const po::unknown_option& e) {
    throw Error(ExitCode::kUsage, str("lockstep ", command.name, ": ", e.what(), meant_by(command, e.get_option_name()),
                                      usage_of(command)));
  } catch (const po::error& e) {
    throw Error(ExitCode::kUsage, str("lockstep ", command.name, ": ", e.what(), usage_of(command)));
  }
  const int given = static_cast<int>(out.positional.size());
  require(given >= command.at_least && given <= command.at_most, ExitCode::kUsage, "lockstep ", command.name, ": ",
          given > command.at_most ? str("unexpected argument '", out.positional.back(), "'") : "missing argument",
          usage_of(command));
  if (!command.words.empty() && given > 0) index_of_word(command, out.positional[0]);
  return out;
}

}  // namespace

Arguments parse_arguments(const std::vector<Command>& forms, const std::vector<std::string>& arguments) {
  if (forms.size() == 1) return parse_form(forms[0], arguments);
  const std::string command = forms[0].name.substr(0, forms[0].name.find(' '));
  if (!arguments.empty() && (arguments[0] == "--help" || arguments[0] == "-h")) {
    std::string text = usages_of(forms);
    for (const Command& c : forms) text += str("\n", c.form(), ":\n", in_columns(c.help, 0));
    print_out(str(text, "\n`lockstep ", command, " ", forms[0].form(), " --help` lists the options of ",
                  forms[0].form(), "; so do the others.\n"));
    Arguments out;
    out.help = true;
    return out;
  }
  std::vector<std::string> names;
  for (const Command& c : forms) {
    names.push_back(c.form());
    if (!arguments.empty() && c.form() == arguments[0]) return parse_form(c, {arguments.begin() + 1, arguments.end()});
  }
  const std::string usage = usages_of(forms);
  throw Error(ExitCode::kUsage,
              str("lockstep ", command, ": ",
                  arguments.empty() ? "missing argument"
                                    : str("there is no '", arguments[0], "'", did_you_mean(arguments[0], names)),
                  "\n", usage.substr(0, usage.size() - 1)));
}

int64_t Arguments::integer(const std::string& name, int64_t least, int64_t most) const {
  const std::string& t = text(name);
  int64_t v = 0;
  auto [end, error] = std::from_chars(t.data(), t.data() + t.size(), v);
  const bool whole = end == t.data() + t.size(), too_large = whole && error == std::errc::result_out_of_range;
  require(whole && (too_large || error == std::errc()), ExitCode::kUsage, "--", name, " ", t, ": is not an integer");
  require(!too_large && v >= least && v <= most, ExitCode::kUsage, "--", name, " ", t, ": must be ",
          most == std::numeric_limits<int64_t>::max() ? str(least, " or more") : str(least, " to ", most));
  return v;
}

std::vector<std::string> Arguments::list(const std::string& name) const {
  const std::string& t = text(name);
  std::vector<std::string> out;
  std::istringstream in(t.empty() || t.back() != ',' ? t : t + ",");  // getline takes the last comma for an end
  for (std::string word; std::getline(in, word, ',');) {
    require(!word.empty(), ExitCode::kUsage, "--", name, " ", t, ": the list has an empty element");
    out.push_back(word);
  }
  return out;
}

int Arguments::ranks(int least) const { return static_cast<int>(integer("ranks", least, kMostRanks)); }

double Arguments::number(const std::string& name, double least, double most) const {
  const std::string& t = text(name);
  double v = 0;
  auto [end, error] = std::from_chars(t.data(), t.data() + t.size(), v);
  require(error == std::errc() && end == t.data() + t.size(), ExitCode::kUsage, "--", name, " ", t,
          ": is not a number");
  require(
      v >= least && v <= most, ExitCode::kUsage, "--", name, " ", t, ": must be ",
      most == std::numeric_limits<double>::infinity() ? str(least, " or more") : str("in [", least, ", ", most, "]"));
  return v;
}

}  // namespace lockstep
