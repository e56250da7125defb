// The standard library alone, compiled beside the umbrella header to tell how fast this machine compiles at the moment.
#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <regex>
#include <string>

int main(int argc, char** argv) {
  std::map<std::string, std::function<int(int)>> functions;
  functions["twice"] = [](int x) { return 2 * x; };
  const std::regex word("[a-z]+");
  for (int i = 1; i < argc; ++i)
    if (std::regex_match(argv[i], word)) std::cout << functions[argv[i]](i) << "\n";
}
