// A plug-in of another version.
extern "C" {
extern const int athanor_plugin_abi;
const int athanor_plugin_abi = 0;
void athanor_register_plugin() {}
}
