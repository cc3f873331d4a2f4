#include "launch/commands/command_line.h"

#include <boost/program_options.hpp>
#include <charconv>
#include <sstream>

#include "core/base/error.h"
#include "launch/commands/commands.h"

namespace lockstep {
namespace po = boost::program_options;

Arguments parse_arguments(const Command& command, const std::vector<std::string>& arguments) {
  po::options_description visible("Options");
  visible.add_options()("help,h", "show this text");
  for (const Option& o : command.options) {
    if (o.value.empty()) visible.add_options()(o.name.c_str(), po::bool_switch(), o.help.c_str());
    else
      visible.add_options()(o.name.c_str(),
                            po::value<std::string>()->value_name(o.value)->default_value(o.standard, o.standard),
                            o.help.c_str());
  }
  po::options_description all;
  all.add(visible).add_options()("positional", po::value<std::vector<std::string>>());
  po::positional_options_description positional;
  positional.add("positional", -1);
  Arguments out;
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
    if (map.count("help")) {
      std::ostringstream text;
      text << "usage: lockstep " << command.usage << "\n\n" << command.help << "\n\n" << visible;
      print(text.str());
      out.help = true;
      return out;
    }
    if (map.count("positional")) out.positional = map["positional"].as<std::vector<std::string>>();
    for (const Option& o : command.options) {
      const std::string name = o.name.substr(0, o.name.find(','));
      out.values[name] = o.value.empty() ? (map[name].as<bool>() ? "true" : "false") : map[name].as<std::string>();
    }
  } catch (const po::error& e) {
    throw Error(ExitCode::kUsage, cat("lockstep ", command.name, ": ", e.what(), "\nusage: lockstep ", command.usage,
                                      "\n`lockstep ", command.name, " --help` says more"));
  }
  const int given = static_cast<int>(out.positional.size());
  require(given >= command.at_least && given <= command.at_most, ExitCode::kUsage, "lockstep ", command.name, ": ",
          given > command.at_most ? cat("unexpected argument '", out.positional.back(), "'") : "missing argument",
          "\nusage: lockstep ", command.usage, "\n`lockstep ", command.name, " --help` says more");
  return out;
}

int64_t Arguments::integer(const std::string& name, int64_t least, int64_t most) const {
  const std::string& t = text(name);
  int64_t v = 0;
  auto [end, error] = std::from_chars(t.data(), t.data() + t.size(), v);
  const bool whole = end == t.data() + t.size(), too_large = whole && error == std::errc::result_out_of_range;
  require(whole && (too_large || error == std::errc()), ExitCode::kUsage, "--", name, " ", t, ": is not an integer");
  require(!too_large && v >= least && v <= most, ExitCode::kUsage, "--", name, " ", t, ": must be ",
          most == std::numeric_limits<int64_t>::max() ? cat(least, " or more") : cat(least, " to ", most));
  return v;
}

int Arguments::ranks(int least) const { return static_cast<int>(integer("ranks", least, kMostRanks)); }

double Arguments::number(const std::string& name) const {
  const std::string& t = text(name);
  double v = 0;
  auto [end, error] = std::from_chars(t.data(), t.data() + t.size(), v);
  require(error == std::errc() && end == t.data() + t.size(), ExitCode::kUsage, "--", name, " ", t,
          ": is not a number");
  return v;
}

}  // namespace lockstep
