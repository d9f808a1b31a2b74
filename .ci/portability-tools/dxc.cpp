// Compiles HLSL to DXIL with Microsoft's compiler: dxc LIBRARY OPTION FILE…. The option is that of optimisation.
// Prints each file that fails with the compiler's message, and at the end the number of files and of failures.
#include <dlfcn.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "WinAdapter.h"
#include "dxcapi.h"

static std::string read(const char *path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

static CComPtr<IDxcResult> compile(IDxcCompiler3 *compiler, const std::wstring &option, const std::string &text) {
  const wchar_t *arguments[] = {L"-T", L"cs_6_2", L"-E", L"main", L"-enable-16bit-types", L"-HV", L"2018", option.c_str()};
  DxcBuffer source = {text.data(), text.size(), DXC_CP_UTF8};
  CComPtr<IDxcResult> result;
  compiler->Compile(&source, arguments, sizeof arguments / sizeof *arguments, nullptr, IID_PPV_ARGS(&result));
  return result;
}

int main(int count, char **arguments) {
  void *library = count > 1 ? dlopen(arguments[1], RTLD_NOW) : nullptr;
  auto create = library ? (DxcCreateInstanceProc)dlsym(library, "DxcCreateInstance") : nullptr;
  CComPtr<IDxcCompiler3> compiler;
  if (!create || FAILED(create(CLSID_DxcCompiler, IID_PPV_ARGS(&compiler)))) {
    std::fprintf(stderr, "no compiler: %s\n", library ? "no instance" : dlerror());
    return 2;
  }
  std::string option = count > 2 ? arguments[2] : "";
  int failures = 0;
  for (int index = 3; index < count; index++) {
    CComPtr<IDxcResult> result = compile(compiler, {option.begin(), option.end()}, read(arguments[index]));
    HRESULT status = E_FAIL;
    if (result) result->GetStatus(&status);
    if (SUCCEEDED(status)) continue;
    failures++;
    CComPtr<IDxcBlobUtf8> message;
    if (result) result->GetOutput(DXC_OUT_ERRORS, IID_PPV_ARGS(&message), nullptr);
    std::printf("%s: %s\n", arguments[index], message ? message->GetStringPointer() : "no result");
  }
  std::printf("%d files, %d failures\n", count - 3, failures);
  return failures > 0;
}
